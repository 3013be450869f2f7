//! UCX's own benchmark, `ucx_perftest`, between two processes of this host: active messages, puts,
//! gets and atomics, over shared memory or TCP.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::harness::{Case, Unit};
use crate::measure::cores::spawn_on;
use crate::measure::processes::{Ended, free_port, listens};
use crate::measure::sampling::{CaseError, Reading, Sampler, undisturbed};
use crate::measure::watch::schedstat;

const PROGRAM: &str = "ucx_perftest";
/// Operations of a warm-up, at most; it is a tenth of a sample.
const WARM_UP: u128 = 10_000;
/// How long a server may take to listen.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a run may take besides its operations.
const START: Duration = Duration::from_secs(1);
/// How often an operation may take what is expected of it. A run is a number of operations: while others use
/// the cores, each of them may wait for a time slice.
const SLOWER: u32 = 10;

/// One test of `ucx_perftest`, between a client on the first core and a server on the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// An active message and one back: half of it.
    AmLatency,
    /// Active messages one way.
    AmRate,
    /// A put that the other side polls for, and one back: half of it.
    PutLatency,
    /// Puts one way, 32 outstanding.
    PutRate,
    /// Gets, one after the other.
    GetLatency,
    /// Fetching additions to a word of the other side, one after the other.
    FetchAdd,
    /// Comparing swaps of a word of the other side, one after the other.
    CompareSwap,
}

impl Test {
    /// Its name on UCX's command line, which is also its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Test::AmLatency => "ucp_am_lat",
            Test::AmRate => "ucp_am_bw",
            Test::PutLatency => "ucp_put_lat",
            Test::PutRate => "ucp_put_bw",
            Test::GetLatency => "ucp_get",
            Test::FetchAdd => "ucp_fadd",
            Test::CompareSwap => "ucp_cswap",
        }
    }
}

/// One run of a test.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The test.
    pub test: Test,
    /// UCX's transport, such as "posix" or "tcp".
    pub over: &'static str,
    /// Bytes of a message; UCX takes 4 or 8 for atomics.
    pub bytes: usize,
    /// What an operation takes, from which follows how many fill a sample; a run that takes many times as
    /// long is disturbed.
    pub expected: Duration,
}

impl Run {
    /// Microseconds an operation takes, as UCX averages it.
    ///
    /// # Errors
    /// Those of a case.
    pub fn microseconds(self, sampler: &Sampler) -> Result<f64, CaseError> {
        column(&self.report(sampler)?, "overall_lat")
    }

    /// Operations per second.
    ///
    /// # Errors
    /// Those of a case.
    pub fn per_second(self, sampler: &Sampler) -> Result<f64, CaseError> {
        column(&self.report(sampler)?, "overall_mr")
    }

    /// Runs the test; what its client says.
    fn report(self, sampler: &Sampler) -> Result<String, CaseError> {
        let Run { test, over, bytes, expected } = self;
        let test = test.name();
        let iterations = (sampler.time.as_nanos() / expected.as_nanos().max(1)).max(1);
        let warm_up = (iterations / 10).clamp(1, WARM_UP);
        let port = free_port()?;
        let base = |command: &mut Command| {
            command.env("UCX_TLS", over).args(["-p", &port.to_string()]).stdin(Stdio::null());
        };
        let mut server = Command::new(PROGRAM);
        base(&mut server);
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Ended(start(sampler.cores.second, &mut server)?);
        wait_for(port, &mut server.0)?;

        let mut client = Command::new(PROGRAM);
        base(&mut client);
        let [bytes, iterations] = [bytes.to_string(), iterations.to_string()];
        client.args(["127.0.0.1", "-t", test, "-s", &bytes, "-n", &iterations]);
        client
            .args(["-w", &warm_up.to_string(), "-f", "-v"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let began = Instant::now();
        let mut client = Ended(start(sampler.cores.first, &mut client)?);
        let limit = START + sampler.time * SLOWER;
        let waited = waited(&client.0, limit)?.max(waited(&server.0, limit)?);
        let wall = began.elapsed();

        let said = |pipe: &mut dyn io::Read| {
            let mut text = String::new();
            pipe.read_to_string(&mut text).map(|_| text)
        };
        let report = client.0.stdout.as_mut().map_or(Ok(String::new()), |pipe| said(pipe))?;
        let status = client.0.wait()?;
        if !status.success() {
            let complaint =
                client.0.stderr.as_mut().map_or(Ok(String::new()), |pipe| said(pipe))?;
            return Err(CaseError::Failed(format!("{PROGRAM} {test}: {status}: {complaint}")));
        }
        undisturbed(waited.as_secs_f64() / wall.as_secs_f64())?;
        Ok(report)
    }
}

/// About half a round trip of so many bytes over a transport, which is what a latency test reports.
pub fn expected_latency(over: &str, bytes: usize) -> Duration {
    let (least, per_byte) = if over == "tcp" { (20_000, 1) } else { (300, 7) };
    Duration::from_nanos(least + bytes as u64 / per_byte)
}

/// Half round trip of an 8-byte active message over shared memory, as UCX averages it.
pub fn latency() -> Case {
    Case::new("ucx/ucp_am_lat, 8 bytes", Unit::Nanoseconds, |sampler| {
        let expected = Duration::from_nanos(300);
        let run = Run { test: Test::AmLatency, over: "posix", bytes: 8, expected };
        Ok(Reading::of(run.microseconds(sampler)? * 1e3))
    })
}

/// One-way rate of 8-byte active messages over shared memory.
pub fn rate() -> Case {
    Case::new("ucx/ucp_am_bw, 8 bytes", Unit::Mops, |sampler| {
        let expected = Duration::from_nanos(80);
        let run = Run { test: Test::AmRate, over: "posix", bytes: 8, expected };
        Ok(Reading::of(run.per_second(sampler)? / 1e6))
    })
}

/// A case of `test` over shared memory, with its name in UCX and the bytes of a message.
pub fn over_shared_memory(test: Test, bytes: usize) -> Case {
    let name = format!("ucx/{}, {bytes} bytes", test.name());
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        let expected = Duration::from_nanos(300);
        let run = Run { test, over: "posix", bytes, expected };
        Ok(Reading::of(run.microseconds(sampler)? * 1e3))
    })
}

fn start(core: usize, command: &mut Command) -> Result<Child, CaseError> {
    spawn_on(core, command).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            CaseError::Absent(format!("{PROGRAM} (Debian's package ucx-utils)"))
        }
        _ => e.into(),
    })
}

/// Waits for the end of a process without reaping it, for `limit` at most: how long it stood in line for its
/// core.
fn waited(child: &Child, limit: Duration) -> Result<Duration, CaseError> {
    let id = Pid::from_child(child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let start = Instant::now();
    while waitid(WaitId::Pid(id), options).map_err(io::Error::from)?.is_none() {
        if start.elapsed() > limit {
            return Err(CaseError::Disturbed(format!("{PROGRAM} did not end within {limit:?}")));
        }
        thread::sleep(Duration::from_millis(2));
    }
    let path = PathBuf::from(format!("/proc/{}/schedstat", child.id()));
    Ok(schedstat(&path).map(|[_, waited]| waited)?)
}

/// Waits until the server listens on `port`.
fn wait_for(port: u16, server: &mut Child) -> Result<(), CaseError> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        if listens(port)? {
            return Ok(());
        }
        if let Some(status) = server.try_wait()? {
            return Err(CaseError::Failed(format!("{PROGRAM} as server: {status}")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(CaseError::Failed(format!("{PROGRAM} did not listen within {TIMEOUT:?}")))
}

/// The last value under `name` in comma-separated output with a head line.
fn column(report: &str, name: &str) -> Result<f64, CaseError> {
    let mut lines = report.lines().filter(|line| line.contains(','));
    let at = lines.next().and_then(|head| head.split(',').position(|field| field == name));
    let value = at.and_then(|at| lines.next_back()?.split(',').nth(at)?.trim().parse().ok());
    value.ok_or_else(|| CaseError::Failed(format!("{PROGRAM} printed no `{name}`:\n{report}")))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_wanted_column_of_the_last_line_is_read() {
        let report = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw\n\
                      100000,0.1,0.2,0.3,1\n\
                      200000,0.230,0.478,0.479,15.96\n";
        assert_eq!(column(report, "overall_lat").expect("a figure"), 0.479);
        column(report, "nothing").expect_err("no such column");
        column("", "overall_lat").expect_err("no output");
    }

    #[test]
    fn a_server_that_listens_is_waited_for() {
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
        let port = socket.local_addr().expect("its address").port();
        let mut child = Ended(Command::new("sleep").arg("60").spawn().expect("sleep"));
        wait_for(port, &mut child.0).expect("listens");
    }

    #[test]
    fn a_server_that_ends_is_an_error() {
        let mut child = Ended(Command::new("false").spawn().expect("false"));
        let error = wait_for(free_port().expect("a port"), &mut child.0).expect_err("ended");
        assert!(error.to_string().contains("as server"), "{error}");
    }
}

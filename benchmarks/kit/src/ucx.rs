//! UCX's own benchmark, `ucx_perftest`, between two processes of this host.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::harness::{Case, Unit};
use crate::measure::cores::spawn_on;
use crate::measure::processes::{Ended, free_port, listens};
use crate::measure::sampling::{CaseError, Reading, Sampler, undisturbed};
use crate::measure::watch::schedstat;

const PROGRAM: &str = "ucx_perftest";
const WARM_UP: &str = "10000";
/// How long a server may take to listen, and a run to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Half round trip of an 8-byte active message over shared memory, as UCX averages it.
pub fn latency() -> Case {
    Case::new("ucx/ucp_am_lat, 8 bytes", Unit::Nanoseconds, |sampler| {
        let expected_ns = 150.0;
        let iterations = sampler.time.as_nanos() as f64 / expected_ns / 2.0;
        Ok(Reading::of(half_round_trip_us(sampler, "posix", iterations)? * 1e3))
    })
}

/// One-way rate of 8-byte active messages over shared memory.
pub fn rate() -> Case {
    Case::new("ucx/ucp_am_bw, 8 bytes", Unit::Mops, |sampler| {
        let expected_ns = 80.0;
        let iterations = sampler.time.as_nanos() as f64 / expected_ns;
        Ok(Reading::of(messages_per_second(sampler, "posix", iterations)? / 1e6))
    })
}

/// Half round trip of an 8-byte active message over UCX's transport `over`, in microseconds, as UCX
/// averages it.
///
/// # Errors
/// Those of a case.
pub fn half_round_trip_us(
    sampler: &Sampler,
    over: &str,
    iterations: f64,
) -> Result<f64, CaseError> {
    column(&run(sampler, over, "ucp_am_lat", iterations)?, "overall_lat")
}

/// One-way rate of 8-byte active messages over UCX's transport `over`.
///
/// # Errors
/// Those of a case.
pub fn messages_per_second(
    sampler: &Sampler,
    over: &str,
    iterations: f64,
) -> Result<f64, CaseError> {
    column(&run(sampler, over, "ucp_am_bw", iterations)?, "overall_mr")
}

/// Runs one test with a server on the second core and a client on the first; what the client said.
fn run(sampler: &Sampler, over: &str, test: &str, iterations: f64) -> Result<String, CaseError> {
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
    let iterations = format!("{iterations:.0}");
    client.args(["127.0.0.1", "-t", test, "-s", "8", "-n", &iterations, "-w", WARM_UP, "-f", "-v"]);
    client.stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = Instant::now();
    let mut client = Ended(start(sampler.cores.first, &mut client)?);
    let waited = waited(&client.0)?.max(waited(&server.0)?);
    let wall = began.elapsed();

    let said = |pipe: &mut dyn io::Read| {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    };
    let report = client.0.stdout.as_mut().map_or(Ok(String::new()), |pipe| said(pipe))?;
    let status = client.0.wait()?;
    if !status.success() {
        let complaint = client.0.stderr.as_mut().map_or(Ok(String::new()), |pipe| said(pipe))?;
        return Err(CaseError::Failed(format!("{PROGRAM} {test}: {status}: {complaint}")));
    }
    undisturbed(waited.as_secs_f64() / wall.as_secs_f64())?;
    Ok(report)
}

fn start(core: usize, command: &mut Command) -> Result<Child, CaseError> {
    spawn_on(core, command).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            CaseError::Absent(format!("{PROGRAM} (Debian's package ucx-utils)"))
        }
        _ => e.into(),
    })
}

/// Waits for the end of a process without reaping it: how long it stood in line for its core.
fn waited(child: &Child) -> Result<Duration, CaseError> {
    let id = Pid::from_child(child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let start = Instant::now();
    while waitid(WaitId::Pid(id), options).map_err(io::Error::from)?.is_none() {
        if start.elapsed() > TIMEOUT {
            return Err(CaseError::Failed(format!("{PROGRAM} did not end within {TIMEOUT:?}")));
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
    use super::*;
    use std::net::TcpListener;

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

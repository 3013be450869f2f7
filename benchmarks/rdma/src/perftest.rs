//! The verbs' own benchmarks, perftest: a server with the second device, on the second core, and a
//! client with the first.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bench_kit::measure::cores::spawn_on;
use bench_kit::measure::processes::{Ended, free_port, listens};
use bench_kit::measure::sampling::{CaseError, Sampler};

use crate::Host;

/// How long a server may take to listen, and a run to end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One program of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// Half a round trip of writes of 8 bytes, in microseconds: the median.
    WriteLatency,
    /// The same of writes of 4 KiB.
    BlockWriteLatency,
    /// The same of messages that are sent and received.
    SendLatency,
    /// Reads of 8 bytes, in microseconds: the median.
    ReadLatency,
    /// The same of 4 KiB.
    BlockReadLatency,
    /// Fetching additions to a word, in microseconds: the median.
    FetchAddLatency,
    /// The same of comparing swaps.
    CompareSwapLatency,
    /// Writes of 4 KiB, 128 under way, in GB/s.
    WriteBandwidth,
    /// Millions of writes a second, 128 under way.
    WriteRate,
}

/// How a test is run and read.
struct TestSpec {
    program: &'static str,
    /// What it takes beside its size.
    further: &'static [&'static str],
    bytes: &'static str,
    /// What an operation may take, from which follows how many fill the time.
    expected: Duration,
    /// The head of the column that is read, and which one it is.
    column: (&'static str, usize),
}

impl Test {
    /// Its command, which is its name in the report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Test::WriteLatency => "ib_write_lat -s 8",
            Test::BlockWriteLatency => "ib_write_lat -s 4096",
            Test::SendLatency => "ib_send_lat -s 8",
            Test::ReadLatency => "ib_read_lat -s 8",
            Test::BlockReadLatency => "ib_read_lat -s 4096",
            Test::FetchAddLatency => "ib_atomic_lat -A FETCH_AND_ADD",
            Test::CompareSwapLatency => "ib_atomic_lat -A CMP_AND_SWAP",
            Test::WriteBandwidth => "ib_write_bw -s 4096",
            Test::WriteRate => "ib_write_bw -s 64",
        }
    }

    fn spec(self) -> TestSpec {
        let of_bytes = |program, bytes| TestSpec {
            program,
            further: &[],
            bytes,
            expected: Duration::from_micros(40),
            column: ("t_typical[usec]", 4),
        };
        let latency = |program| of_bytes(program, "8");
        let atomic = |further| TestSpec { further, ..latency("ib_atomic_lat") };
        let rate = |bytes| TestSpec {
            program: "ib_write_bw",
            further: &[],
            bytes,
            expected: Duration::from_micros(20),
            column: ("MsgRate[Mpps]", 4),
        };
        match self {
            Test::WriteLatency => latency("ib_write_lat"),
            Test::BlockWriteLatency => of_bytes("ib_write_lat", "4096"),
            Test::SendLatency => latency("ib_send_lat"),
            Test::ReadLatency => latency("ib_read_lat"),
            Test::BlockReadLatency => of_bytes("ib_read_lat", "4096"),
            Test::FetchAddLatency => atomic(&["-A", "FETCH_AND_ADD"]),
            Test::CompareSwapLatency => atomic(&["-A", "CMP_AND_SWAP"]),
            Test::WriteRate => rate("64"),
            Test::WriteBandwidth => rate("4096"),
        }
    }
}

/// The version of perftest, or why there is none.
pub(crate) fn version() -> String {
    match Command::new("ib_write_lat").arg("--version").output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split_whitespace().last().unwrap_or("of an unknown version").to_owned()
        }
        Err(e) => e.to_string(),
    }
}

/// What `test` says of these two hosts.
pub(crate) fn figure(sampler: &Sampler, hosts: &[Host; 2], test: Test) -> Result<f64, CaseError> {
    let TestSpec { program, further, bytes, expected, column: (head, at) } = test.spec();
    let port = free_port()?;
    let count = (sampler.time.as_nanos() / expected.as_nanos()).to_string();
    let start = |host: &Host, core| {
        let mut command = Command::new(program);
        command.args(["-F", "-x", "1", "-d", &host.device, "-p", &port.to_string()]);
        command.args(["-n", &count]).args(further);
        // The bytes of an atomic are always eight, and it takes no option for them.
        if further.is_empty() {
            command.args(["-s", bytes]);
        }
        if core == sampler.cores.first {
            command.arg(&hosts[1].address);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match spawn_on(core, &mut command) {
            Ok(child) => Ok(Ended(child)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(CaseError::Absent(format!("{program} (Debian's package perftest)")))
            }
            Err(e) => Err(e.into()),
        }
    };
    let mut server = start(&hosts[1], sampler.cores.second)?;
    wait_until(&format!("{program} listens"), || Ok(has_ended(&mut server)? || listens(port)?))?;
    if has_ended(&mut server)? {
        return Err(CaseError::Failed(format!("{program} as server: {}", said(&mut server)?)));
    }
    let mut client = start(&hosts[0], sampler.cores.first)?;
    wait_until(&format!("{program} ends"), || {
        Ok(has_ended(&mut client)? && has_ended(&mut server)?)
    })?;
    let value = read(&said(&mut client)?, bytes, head, at)?;
    Ok(match test {
        // From millions of messages to gigabytes.
        Test::WriteBandwidth => value * 4096.0 / 1e3,
        _ => value,
    })
}

fn wait_until(what: &str, mut done: impl FnMut() -> io::Result<bool>) -> Result<(), CaseError> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > TIMEOUT {
            return Err(CaseError::Failed(format!("waited {TIMEOUT:?} in vain until {what}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The value of a column, which is the `at`th, in the row for messages of `bytes`.
fn read(report: &str, bytes: &str, head: &str, at: usize) -> Result<f64, CaseError> {
    let row = |line: &&str| line.split_whitespace().next() == Some(bytes);
    let has_head = report.lines().any(|line| line.starts_with(" #bytes") && line.contains(head));
    let row = report.lines().find(row).filter(|_| has_head);
    let value = row.and_then(|row| row.split_whitespace().nth(at)?.parse().ok());
    value.ok_or_else(|| CaseError::Failed(format!("perftest printed no `{head}`:\n{report}")))
}

fn has_ended(process: &mut Ended) -> io::Result<bool> {
    Ok(process.0.try_wait()?.is_some())
}

/// All that a process has printed, once it has ended; that is less than a pipe holds.
fn said(process: &mut Ended) -> io::Result<String> {
    let mut text = String::new();
    if let (Some(out), Some(err)) = (&mut process.0.stdout, &mut process.0.stderr) {
        out.chain(err).read_to_string(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_rates_are_read() {
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
                       t_avg[usec]    t_stdev[usec]   99% percentile[usec]\n \
                       8       1000          13.10          96.09        16.94     \t       \
                       17.75       \t2.10\t\t25.13\n";
        assert_eq!(read(latency, "8", "t_typical[usec]", 4).expect("a figure"), 16.94);
        let rate = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   \
                    MsgRate[Mpps]\n 64         5000             2.93               2.91      \
                    \t   0.047717\n";
        assert_eq!(read(rate, "64", "MsgRate[Mpps]", 4).expect("a figure"), 0.047717);
        read(rate, "64", "t_typical[usec]", 4).expect_err("another report");
        read("", "8", "t_typical[usec]", 4).expect_err("no report");
    }
}

//! [`Guest`]: one that runs. Its output is shown as it comes; lines over its control port report
//! when it is ready and how the work ended ([`supervise`]):
//!
//! ```text
//! guest.sh   ready           its network is there
//! we         go              all guests are ready
//! guest.sh   kernel TEXT     its kernel has logged an error meanwhile
//! guest.sh   status NUMBER   the work is done
//! ```

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gossamer_deploy::interrupt::{Interrupt, signal};

/// The time that guests have to get ready. Emulated ones take four seconds on an idle machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// The time that the other guest has to end when one has failed, so that it can report what it saw.
const FAILURE_GRACE: Duration = Duration::from_secs(10);
/// The time that a QEMU has to end after SIGTERM; it restores the terminal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// The interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The exit status after a timeout, as of the program `timeout`.
const TIMED_OUT: u8 = 124;
/// The lines of a console that a message quotes.
const CONSOLE_LINES: usize = 25;

/// A line that a guest sent over its control port, with its number; none when the port has closed.
pub(crate) type Event = (usize, Option<String>);

/// A guest that runs, ended when it is dropped.
pub(crate) struct Guest {
    number: usize,
    process: Child,
    /// The file with what its kernel and its scripts have written to its console.
    console: PathBuf,
    control: UnixStream,
    readers: Vec<JoinHandle<()>>,
    is_ready: bool,
    status: Option<u8>,
}

impl Guest {
    /// The guest of a QEMU, with its ports: standard output, standard error, control. What it
    /// prints is shown with `prefix` in front of each line.
    pub(crate) fn new(
        number: usize,
        process: Child,
        console: PathBuf,
        [stdout, stderr, control]: [UnixStream; 3],
        prefix: &str,
        events: Sender<Event>,
    ) -> Result<Self> {
        let lines = BufReader::new(control.try_clone()?);
        let (out, error) = (prefix.to_owned(), prefix.to_owned());
        let readers = vec![
            thread::spawn(move || copy(stdout, std::io::stdout(), &out)),
            thread::spawn(move || copy(stderr, std::io::stderr(), &error)),
            thread::spawn(move || report(number, lines, &events)),
        ];
        Ok(Self { number, process, console, control, readers, is_ready: false, status: None })
    }

    /// Handles a line of its control port.
    fn handle(&mut self, line: Option<String>) -> Result<()> {
        let number = self.number;
        let Some(line) = line else {
            // After its work it may end.
            ensure!(self.status.is_some(), "guest {number} has stopped:\n{}", self.last_words());
            return Ok(());
        };
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("ready", _) => self.is_ready = true,
            ("status", status) => {
                let status = status.parse();
                self.status = Some(status.with_context(|| format!("guest {number}: {line:?}"))?);
                self.end();
            }
            ("kernel", line) => {
                eprintln!("rdma-vm: kernel of guest {number}: {line}");
            }
            _ => bail!("unknown message {line:?} of guest {number}"),
        }
        Ok(())
    }

    /// The end of its console.
    fn last_words(&self) -> String {
        last_lines(&self.console)
    }

    fn end(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        while let Ok(None) = self.process.try_wait() {
            if Instant::now() >= deadline {
                // Cannot fail: it is our child and has not been waited for.
                let _ = self.process.kill().and_then(|()| self.process.wait());
                return;
            }
            signal(self.process.id(), "TERM");
            sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
        // The machine has ended, so its output ends, and all of it is shown.
        for reader in self.readers.drain(..) {
            // A thread that panicked has printed so.
            let _ = reader.join();
        }
    }
}

/// Waits until the work of all guests is done, for `timeout` at most once all are ready. Returns the
/// first exit status that was not 0, if there is one.
pub(crate) fn supervise(
    guests: &mut [Guest],
    events: &Receiver<Event>,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<u8> {
    let mut works = false;
    let mut failed = None;
    let mut end = Some(Instant::now() + BOOT_TIMEOUT);
    while guests.iter().any(|guest| guest.status.is_none()) {
        interrupt.check()?;
        match events.recv_timeout(POLL_INTERVAL) {
            Ok((number, line)) => guests[number].handle(line)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("all ports of the guests are closed"),
        }
        if !works && guests.iter().all(|guest| guest.is_ready) {
            works = true;
            end = timeout.map(|timeout| Instant::now() + timeout);
            for guest in &mut *guests {
                guest
                    .control
                    .write_all(b"go\n")
                    .context("cannot write to a guest's control port")?;
            }
        }
        if failed.is_none() {
            failed = guests.iter().find_map(|guest| guest.status.filter(|status| *status != 0));
            if failed.is_some() {
                let soon = Instant::now() + FAILURE_GRACE;
                end = Some(end.map_or(soon, |end| end.min(soon)));
            }
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            let words: String = guests.iter().map(Guest::last_words).collect();
            ensure!(works, "guests not ready within {BOOT_TIMEOUT:?}:\n{words}");
            let timeout = timeout.unwrap_or_default();
            match failed {
                Some(_) => eprintln!("rdma-vm: one guest failed, so the other was ended"),
                None => eprintln!("rdma-vm: timed out after {timeout:?} (--timeout)\n{words}"),
            }
            return Ok(failed.unwrap_or(TIMED_OUT));
        }
    }
    Ok(failed.unwrap_or(0))
}

/// Copies what a guest prints to an output of ours, as it comes, until the guest is gone.
fn copy(mut from: impl Read, mut to: impl Write, prefix: &str) {
    // If our output is closed, the guest's is still read, so that the guest can end.
    let mut is_open = true;
    let mut show = |bytes: &[u8]| {
        is_open = is_open && to.write_all(bytes).and_then(|()| to.flush()).is_ok();
    };
    if prefix.is_empty() {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            show(&bytes[..count]);
        }
        return;
    }
    let mut lines = BufReader::new(from);
    let mut line = prefix.as_bytes().to_vec();
    while let Ok(1..) = lines.read_until(b'\n', &mut line) {
        show(&line);
        line.truncate(prefix.len());
    }
}

/// Sends on the lines of a guest's control port, and its end.
fn report(guest: usize, lines: impl BufRead, events: &Sender<Event>) {
    for line in lines.lines().map_while(Result::ok) {
        if events.send((guest, Some(line))).is_err() {
            return;
        }
    }
    // Fails once all work is done, when the receiver is gone.
    let _ = events.send((guest, None));
}

/// The last lines of a text file, for a message.
pub(crate) fn last_lines(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
    last.iter().map(|line| format!("  | {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use super::*;

    /// Guests without machines: each is a shell whose standard input and output are its control
    /// port.
    fn supervised(scripts: &[&str], timeout: Duration) -> Result<u8> {
        let (sender, events) = mpsc::channel();
        let mut guests: Vec<_> = (0..)
            .zip(scripts)
            .map(|(number, script)| {
                let (control, its) = UnixStream::pair().unwrap();
                let mut command = Command::new("sh");
                command
                    .args(["-c", script])
                    .stdin(Stdio::from(std::os::fd::OwnedFd::from(its.try_clone().unwrap())));
                let process = command.stdout(std::os::fd::OwnedFd::from(its)).spawn().unwrap();
                // Outputs on which nothing comes.
                let outputs = [(); 2].map(|()| UnixStream::pair().unwrap().0);
                let [stdout, stderr] = outputs;
                let console = PathBuf::from("/proc/sys/kernel/ostype");
                let ports = [stdout, stderr, control];
                Guest::new(number, process, console, ports, "", sender.clone()).unwrap()
            })
            .collect();
        supervise(&mut guests, &events, Some(timeout), &Interrupt::never())
    }

    const LONG: Duration = Duration::from_secs(600);
    const GOOD: &str = "echo ready; read go; echo status 0; exec sleep 600";

    #[test]
    fn work_starts_when_all_are_ready_and_ends_with_their_status() {
        let good = format!("echo kernel is fine; {GOOD}");
        assert_eq!(supervised(&[&good], LONG).unwrap(), 0);
        assert_eq!(supervised(&[&good, "echo ready; read go; echo status 7"], LONG).unwrap(), 7);
        // The other, which is never ready, would have kept it from working.
        let error = supervised(&[GOOD, "exit"], LONG).unwrap_err().to_string();
        assert!(error.starts_with("guest 1 has stopped:\n  | Linux"), "{error}");
    }

    #[test]
    fn work_times_out() {
        let hangs = "echo ready; read go; exec sleep 600";
        assert_eq!(supervised(&[hangs, GOOD], Duration::from_millis(50)).unwrap(), TIMED_OUT);
    }

    #[test]
    fn unknown_messages_are_errors() {
        for line in ["status high", "status 300", "nonsense"] {
            let error = supervised(&[&format!("echo {line}")], LONG).unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
        }
    }

    #[test]
    fn output_is_copied_with_a_prefix_if_there_is_one() {
        let mut copied = Vec::new();
        copy(&b"one\ntwo"[..], &mut copied, "");
        assert_eq!(copied, b"one\ntwo");
        copied.clear();
        copy(&b"one\n\ntwo"[..], &mut copied, "1| ");
        assert_eq!(copied, b"1| one\n1| \n1| two");
    }

    #[test]
    fn a_message_has_the_end_of_a_console() {
        let file = std::env::temp_dir().join(format!("gossamer-console-{}", std::process::id()));
        let text: Vec<String> = (0..40).map(|line| format!("line {line}\n\n")).collect();
        fs::write(&file, text.concat()).unwrap();
        let last = last_lines(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(last.lines().count(), CONSOLE_LINES);
        assert!(last.starts_with("  | line 15\n") && last.ends_with("  | line 39\n"), "{last}");
        assert_eq!(last_lines(Path::new("/no/such/file")), "");
    }
}

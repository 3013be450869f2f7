//! [`Interrupt`]: whether a signal asked the command to end. While an `Interrupt` exists, Ctrl-C,
//! SIGTERM and SIGHUP do not end the command at once, so that it can remove what it made.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The interval at which a program that runs, and signals, are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The signals that were received.
#[derive(Debug)]
pub struct Interrupt {
    /// From the terminal, which signals the programs that run as well.
    by_terminal: Arc<AtomicBool>,
    /// Sent to this command alone.
    by_signal: Arc<AtomicBool>,
}

impl Interrupt {
    /// Notes signals from now on.
    ///
    /// # Errors
    /// If the handlers cannot be registered.
    pub fn new() -> Result<Self> {
        let interrupt = Self::never();
        for (number, noted) in [
            (SIGINT, &interrupt.by_terminal),
            (SIGTERM, &interrupt.by_signal),
            (SIGHUP, &interrupt.by_signal),
        ] {
            flag::register(number, noted.clone()).context("cannot register signal handlers")?;
        }
        Ok(interrupt)
    }

    /// Notes no signal.
    pub fn never() -> Self {
        Self { by_terminal: Arc::default(), by_signal: Arc::default() }
    }

    /// Returns an error once a signal was received.
    ///
    /// # Errors
    /// `interrupted`.
    pub fn check(&self) -> Result<()> {
        let received = [&self.by_terminal, &self.by_signal];
        let received = received.into_iter().any(|noted| noted.load(Ordering::Relaxed));
        ensure!(!received, "interrupted");
        Ok(())
    }

    /// Waits for a program, which gets SIGTERM if this command does; returns its exit status as a
    /// shell reports it.
    ///
    /// # Errors
    /// If the program cannot be waited for.
    pub fn wait(&self, mut child: Child) -> Result<u8> {
        let mut was_signalled = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if !was_signalled && self.by_signal.load(Ordering::Relaxed) {
                signal(child.id(), "TERM");
                was_signalled = true;
            }
            sleep(POLL_INTERVAL);
        };
        Ok(status_of(status))
    }
}

/// Sends a process a signal by its name; one that has ended needs none.
pub fn signal(process: u32, name: &str) {
    let mut kill = Command::new("kill");
    let _ = kill.args(["-s", name, &process.to_string()]).stderr(Stdio::null()).status();
}

fn status_of(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(128 + status.signal()?));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn an_exit_status_is_that_of_a_shell() {
        let interrupt = Interrupt::never();
        assert_eq!(interrupt.wait(shell("exit 7")).unwrap(), 7);
        assert_eq!(interrupt.wait(shell("kill -KILL $$")).unwrap(), 137);
    }

    #[test]
    fn a_program_was_signalled_to_end_with_us() {
        let interrupt = Interrupt::never();
        assert!(interrupt.check().is_ok());
        interrupt.by_signal.store(true, Ordering::Relaxed);
        assert!(interrupt.check().is_err());
        assert_eq!(interrupt.wait(shell("exec sleep 600")).unwrap(), 143);
    }
}

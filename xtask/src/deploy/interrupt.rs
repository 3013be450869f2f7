//! [`Interrupt`]: whether somebody wants the command to end. While it is there, Ctrl-C, SIGTERM and
//! SIGHUP do not end the command at once, so that it can take down what it has made.

use crate::netns::world::signal;
use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// How often to look whether a program has ended or a signal has come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The signals that have come.
pub(crate) struct Interrupt {
    /// From the terminal, which sends it to the programs that run, too.
    by_terminal: Arc<AtomicBool>,
    /// Sent to this command alone.
    by_signal: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on, signals are noted.
    pub(crate) fn new() -> Result<Self> {
        let interrupt = Self::never();
        for (number, noted) in [
            (SIGINT, &interrupt.by_terminal),
            (SIGTERM, &interrupt.by_signal),
            (SIGHUP, &interrupt.by_signal),
        ] {
            flag::register(number, noted.clone()).context("cannot wait for signals")?;
        }
        Ok(interrupt)
    }

    /// Notes no signal.
    pub(crate) fn never() -> Self {
        Self { by_terminal: Arc::default(), by_signal: Arc::default() }
    }

    /// An error once the command is to end.
    pub(crate) fn check(&self) -> Result<()> {
        let has_come = [&self.by_terminal, &self.by_signal];
        let has_come = has_come.into_iter().any(|noted| noted.load(Ordering::Relaxed));
        ensure!(!has_come, "interrupted");
        Ok(())
    }

    /// Waits for a program, which is told to end if this command is; its exit status, as shells
    /// count it.
    pub(crate) fn wait(&self, mut child: Child) -> Result<u8> {
        let mut is_told = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if !is_told && self.by_signal.load(Ordering::Relaxed) {
                signal(child.id(), "TERM");
                is_told = true;
            }
            sleep(LOOK_EVERY);
        };
        Ok(status_of(status))
    }
}

fn status_of(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(128 + status.signal()?));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
    fn a_program_is_told_to_end_with_us() {
        let interrupt = Interrupt::never();
        assert!(interrupt.check().is_ok());
        interrupt.by_signal.store(true, Ordering::Relaxed);
        assert!(interrupt.check().is_err());
        assert_eq!(interrupt.wait(shell("exec sleep 600")).unwrap(), 143);
    }
}

//! [`UserSignals`]: counts SIGUSR2, by which a user asks a process what its fibers wait for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr};

static SENT: AtomicU32 = AtomicU32::new(0);

/// Counts SIGUSR2 from construction on, including signals that arrive before the polling thread first runs.
#[derive(Debug)]
pub struct UserSignals {
    seen: u32,
}

impl UserSignals {
    /// Counts SIGUSR2 from now on, unless the program has a handler of its own for it, or ignores it:
    /// the signal no longer ends the process.
    ///
    /// # Errors
    /// The system's, if it installs no handler.
    pub fn install() -> io::Result<Self> {
        // Read before the handler is installed: a signal in between must count as new.
        let seen = SENT.load(Ordering::Relaxed);
        install_handler()?;
        Ok(Self { seen })
    }

    /// Whether a signal has arrived since the last call, or since [`install`](Self::install).
    pub fn received(&mut self) -> bool {
        let sent = SENT.load(Ordering::Relaxed);
        std::mem::replace(&mut self.seen, sent) != sent
    }
}

fn install_handler() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid one: default handler, no flags, empty mask.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `old` is a valid place for the current action, and the action is not changed.
    if unsafe { libc::sigaction(libc::SIGUSR2, ptr::null(), &raw mut old) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if old.sa_sigaction != libc::SIG_DFL {
        return Ok(());
    }
    // SAFETY: as for `old`.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = on_signal as *const () as usize;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: `new` is a valid action. Its handler changes an atomic, which is allowed in signal
    // handlers.
    if unsafe { libc::sigaction(libc::SIGUSR2, &raw const new, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_signal(_: libc::c_int) {
    SENT.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_before_the_polling_thread_runs_is_received() {
        let mut signals = UserSignals::install().expect("a handler");
        // SAFETY: the signal has a handler, which changes an atomic.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
        let polls = std::thread::spawn(move || [signals.received(), signals.received()]);
        assert_eq!(polls.join().expect("a thread that ends"), [true, false]);
    }
}

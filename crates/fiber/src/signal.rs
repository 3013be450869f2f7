//! Counts SIGUSR2, by which a user asks a process what its fibers wait for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr};

static SENT: AtomicU32 = AtomicU32::new(0);

/// Counts SIGUSR2 from now on, unless the program has a handler of its own for it, or ignores it: the
/// signal no longer ends the process. [`user_signals`] returns the count.
///
/// # Errors
/// The system's, if it installs no handler.
pub fn count_user_signals() -> io::Result<()> {
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

/// How often SIGUSR2 has come since [`count_user_signals`].
pub fn user_signals() -> u32 {
    SENT.load(Ordering::Relaxed)
}

extern "C" fn on_signal(_: libc::c_int) {
    SENT.fetch_add(1, Ordering::Relaxed);
}

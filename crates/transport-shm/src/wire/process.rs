//! Whether the process of a pidfd has ended, and how.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, waitid};

use crate::wire::socket::readable;

/// How a process ended that is no child of this one: the kernel reports that to its parent only.
pub(crate) const STATUS_UNKNOWN: &str = "status unknown";

/// Whether the process of `pidfd` has ended.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    readable([Some(pidfd.as_fd())], Instant::now()).is_ok_and(|[ended]| ended)
}

/// The status with which the process of `pidfd` ended, or `None` while it runs. Fails if it is not
/// a child of this process.
fn child_status(pidfd: &OwnedFd) -> io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::PidFd(pidfd.as_fd()), options)?)
}

/// The status with which the process of `pidfd` ended, if it is a child of this one and has ended.
fn status_of(pidfd: &OwnedFd) -> Option<WaitIdStatus> {
    child_status(pidfd).ok().flatten()
}

/// Whether the process of `pidfd` is a child of this one that has not ended.
pub(crate) fn is_running_child(pidfd: &OwnedFd) -> bool {
    matches!(child_status(pidfd), Ok(None))
}

/// Whether the process of `pidfd` is known to have been ended by a signal.
pub(crate) fn was_killed(pidfd: &OwnedFd) -> bool {
    status_of(pidfd).is_some_and(|status| status.terminating_signal().is_some())
}

/// How the process of `pidfd` ended, in words, as far as this process may know.
pub(crate) fn how_it_ended(pidfd: &OwnedFd) -> String {
    let Some(status) = status_of(pidfd) else { return STATUS_UNKNOWN.into() };
    if let Some(code) = status.exit_status() {
        return format!("exit status {code}");
    }
    let Some(number) = status.terminating_signal() else { return STATUS_UNKNOWN.into() };
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
    ];
    let name = names.iter().find(|(n, _)| *n == number).map(|(_, name)| format!(" ({name})"));
    format!("signal {number}{}", name.unwrap_or_default())
}

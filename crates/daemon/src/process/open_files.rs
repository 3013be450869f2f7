//! How many descriptors a daemon, and a program that it starts, may have open.
//!
//! A daemon has some seven for each process of a job, and the usual limit is 1024, so it raises its
//! own. Programs have the limit that the daemon was started with: a program that waits with `select`
//! cannot use descriptors from 1024 on, and others close all that they might have.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process as far as the system allows. Returns the limit before that.
pub(crate) fn raise() -> Option<u64> {
    let before = getrlimit(Resource::Nofile).current;
    if let Err(error) = set(getrlimit(Resource::Nofile).maximum) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    before
}

/// Limits this process, and those that it starts, to what [`raise`] returned.
///
/// # Errors
/// The error of the system.
pub(crate) fn restore(limit: Option<u64>) -> io::Result<()> {
    // Somebody may have lowered the maximum of the daemon since then (`prlimit`).
    set(match (limit, getrlimit(Resource::Nofile).maximum) {
        (Some(limit), Some(maximum)) => Some(limit.min(maximum)),
        (limit, maximum) => limit.or(maximum),
    })
}

fn set(limit: Option<u64>) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == limit {
        // The system may refuse even this, if its own limit was lowered below `maximum`.
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit, maximum })?)
}

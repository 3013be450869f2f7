//! Descriptors that a process inherits from its daemon; its environment has their numbers.

use std::os::fd::OwnedFd;
use std::{env, io};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use thiserror::Error;

/// The environment names a description, or a socket, that cannot be used.
#[derive(Debug, Error)]
pub enum JobError {
    /// The variable does not hold the number of a descriptor.
    #[error("{variable} must be a file-descriptor number above 2, got {value:?}")]
    Descriptor {
        /// The variable.
        variable: &'static str,
        /// Its value; empty if it is not set.
        value: String,
    },
    /// The descriptor cannot be used.
    #[error(
        "cannot use the file descriptor that {variable} names: check that no program between the \
         daemon and this one closes inherited descriptors"
    )]
    Read {
        /// The variable that names the descriptor.
        variable: &'static str,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The description is invalid.
    #[error("invalid job description: {0}")]
    Invalid(String),
}

/// A copy of the descriptor whose number the environment has.
pub(crate) fn take_descriptor(variable: &'static str) -> Result<Option<OwnedFd>, JobError> {
    let Some(fd) = descriptor(variable)? else { return Ok(None) };
    let take = || {
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        // The number was never owned by anything in this program: a copy of it is.
        Ok(pidfd_getfd(this, fd, PidfdGetfdFlags::empty())?)
    };
    take().map(Some).map_err(|error| JobError::Read { variable, error })
}

pub(crate) fn descriptor(variable: &'static str) -> Result<Option<i32>, JobError> {
    let Some(value) = env::var_os(variable) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    match value.parse() {
        Ok(number) if number > 2 => Ok(Some(number)),
        _ => Err(JobError::Descriptor { variable, value }),
    }
}

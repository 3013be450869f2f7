//! Errors of delegated requests, and the panic reports that travel back for them.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use primitive::drop_payload;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::{HostId, LossReason, ThreadId};

/// Why a delegated request has no result. A closure that is delegated itself may return it.
#[derive(Debug, Clone, Error, Serialize, Deserialize)]
pub enum DelegateError {
    /// The closure panicked at the trustee. The trustee goes on, and so does the property, in
    /// whatever state the closure left it: there is no poisoning.
    #[error("the closure panicked on {trustee}: {report}")]
    Panicked {
        /// Where it ran.
        trustee: ThreadId,
        /// The message of its panic.
        report: PanicReport,
    },
    /// The trustee refused the request before anything ran.
    #[error("{trustee} refused the request: {reason}")]
    Refused {
        /// The trustee.
        trustee: ThreadId,
        /// Why, and what to do.
        reason: String,
    },
    /// The trustee's host is gone; the closure may or may not have run.
    #[error("{host} is gone: {reason}")]
    PeerLost {
        /// The host.
        host: HostId,
        /// Why the transport considers it gone.
        reason: LossReason,
    },
    /// An argument or a result could not be encoded or decoded.
    #[error("cannot {what}")]
    Codec {
        /// The step that failed: "encode the arguments", "decode the result", ...
        what: Cow<'static, str>,
        /// The codec's error.
        source: CodecError,
    },
    /// The reply had not come when the timeout of the call passed. The closure may have run, and it may
    /// still run: a reply that comes later is dropped.
    #[error("no reply from {trustee} within {timeout:?}")]
    TimedOut {
        /// The trustee.
        trustee: ThreadId,
        /// How long was waited.
        timeout: Duration,
    },
    /// The rack is shutting down, or the calling thread belongs to none.
    #[error("{0}")]
    NoRack(Cow<'static, str>),
}

pub(crate) const OUTSIDE: DelegateError = DelegateError::NoRack(Cow::Borrowed(
    "a trust can only be used by a fiber of its rack (inside the closure given to `Rack::run`, or \
     in what it spawns); from other threads use `apply_async`, with the feature `tokio`",
));
/// [`OUTSIDE`], for a call.
#[cold]
#[inline(never)]
pub(crate) fn outside() -> Box<DelegateError> {
    Box::new(OUTSIDE)
}

pub(crate) const NO_SUCH_THREAD: DelegateError =
    DelegateError::NoRack(Cow::Borrowed("the trust's trustee is not a thread of this rack"));
pub(crate) const RACK_ENDED: DelegateError =
    DelegateError::NoRack(Cow::Borrowed("the rack has ended"));

/// How a call has ended. Its failure is boxed, so that a small result stays in registers.
pub(crate) type CallResult<U> = Result<U, Box<DelegateError>>;

/// Displays an error and its causes, separated by colons: for messages that end the chain, such as
/// those of panics and reports to other hosts.
#[derive(Debug)]
pub struct Chain<'a>(pub &'a dyn StdError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        let mut level = self.0;
        while let Some(cause) = level.source() {
            write!(f, ": {cause}")?;
            level = cause;
        }
        Ok(())
    }
}

/// A value cannot be encoded or decoded.
#[derive(Debug, Clone, Error, Serialize, Deserialize)]
#[error("{0}")]
pub struct CodecError(pub(crate) String);

impl CodecError {
    /// A value's own code panicked while it was encoded or decoded.
    #[cold]
    pub(crate) fn of_panic(payload: Panic) -> Self {
        let report = PanicReport::taken(payload);
        CodecError(format!("the value's own code panicked: {report}"))
    }
}

/// The payload of a caught panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs code of users, whose panic must not end the runtime's thread, and hands the panic to
/// `caught`.
pub(crate) fn catch(caught: &mut dyn FnMut(Panic), run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        caught(panic);
    }
}

/// A panic that happened on another thread or host, as far as it can travel: its message. It is
/// also the payload with which the panic is resumed in the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PanicReport {
    /// The panic's message, if it was a string.
    pub message: String,
}

impl PanicReport {
    /// The report of a caught panic, whose payload is freed. Its destructor is code of the user:
    /// call this where that may run.
    #[cold]
    pub(crate) fn taken(payload: Panic) -> Self {
        let report = Self::of(&*payload);
        drop_payload(payload);
        report
    }

    /// The report of a caught panic.
    pub fn of(payload: &(dyn Any + Send)) -> Self {
        let message = if let Some(text) = payload.downcast_ref::<&str>() {
            (*text).to_owned()
        } else if let Some(text) = payload.downcast_ref::<String>() {
            text.clone()
        } else if let Some(report) = payload.downcast_ref::<PanicReport>() {
            return report.clone();
        } else {
            "a panic whose payload is not a string".to_owned()
        };
        PanicReport { message }
    }
}

impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_prints_one_level_and_chain_all() {
        let source = CodecError("too deep".to_owned());
        let error = DelegateError::Codec { what: "encode the arguments".into(), source };
        assert_eq!(error.to_string(), "cannot encode the arguments");
        assert_eq!(Chain(&error).to_string(), "cannot encode the arguments: too deep");
    }
}

//! Errors of delegated requests, and the panic reports that travel back for them.

mod report;

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fiber::JoinError;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::{HostId, LossReason, ThreadId};

pub use self::report::PanicReport;

/// Why a delegated request has no result.
///
/// It travels as any other argument or result does, so closures that are delegated themselves, and
/// fibers on other hosts, may return it and use `?`. A [`JoinError`] becomes one as well.
///
/// ```
/// # use gossamer_trust_core::{DelegateError, Trust};
/// fn total(left: &Trust<u64>, right: &Trust<u64>) -> Result<u64, DelegateError> {
///     Ok(left.try_apply(|n| *n)? + right.try_apply(|n| *n)?)
/// }
/// ```
#[derive(Debug, Clone, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DelegateError {
    /// The closure panicked at the trustee. The trustee goes on, and so does the property, in
    /// whatever state the closure left it: there is no poisoning.
    #[error("the closure panicked on {trustee}: {report}")]
    Panicked {
        /// Where it ran.
        trustee: ThreadId,
        /// Message and place of its panic.
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
    #[error("{host} is gone")]
    PeerLost {
        /// The host.
        host: HostId,
        /// Why the transport considers it gone.
        #[source]
        reason: LossReason,
    },
    /// The sender could not encode the arguments, or the trustee could not decode them: the closure
    /// has not run.
    #[error("cannot {step} the arguments, a `{type_name}`, {} {trustee}", step.of_arguments())]
    BadArguments {
        /// What failed.
        step: CodecStep,
        /// The type of the arguments.
        type_name: Box<str>,
        /// The trustee. It has decoded them; their encoding is the sender's.
        trustee: ThreadId,
        /// The codec's error.
        source: CodecError,
    },
    /// The closure has run, but the trustee could not encode its result, or the caller could not
    /// decode it.
    #[error("cannot {step} the result, a `{type_name}`, {} {trustee}", step.of_result())]
    BadResult {
        /// What failed.
        step: CodecStep,
        /// The type of the result.
        type_name: Box<str>,
        /// The trustee. It has encoded the result, which the caller decodes.
        trustee: ThreadId,
        /// The codec's error.
        source: CodecError,
    },
    /// A fiber was joined that has no result, and not because of a request.
    #[error("{0}")]
    Join(String),
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

/// The step at which a value did not get across.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CodecStep {
    /// The value could not be turned into bytes.
    Encode,
    /// The bytes could not be turned into the value.
    Decode,
}

impl CodecStep {
    /// How the trustee is related to this step of arguments.
    fn of_arguments(self) -> &'static str {
        match self {
            CodecStep::Encode => "for",
            CodecStep::Decode => "on",
        }
    }

    /// How the trustee is related to this step of a result.
    fn of_result(self) -> &'static str {
        match self {
            CodecStep::Encode => "on",
            CodecStep::Decode => "of",
        }
    }
}

impl fmt::Display for CodecStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CodecStep::Encode => "encode",
            CodecStep::Decode => "decode",
        })
    }
}

/// A value that did not get across, as a reply says it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BadValue {
    pub(crate) step: CodecStep,
    pub(crate) type_name: Box<str>,
    pub(crate) source: CodecError,
}

impl BadValue {
    /// A `V` that could not be encoded.
    #[cold]
    pub(crate) fn unencodable<V>(source: CodecError) -> Self {
        Self::of(CodecStep::Encode, type_name::<V>(), source)
    }

    /// A `V` that could not be decoded.
    #[cold]
    pub(crate) fn undecodable<V>(source: CodecError) -> Self {
        Self::of(CodecStep::Decode, type_name::<V>(), source)
    }

    #[cold]
    fn of(step: CodecStep, type_name: &str, source: CodecError) -> Self {
        Self { step, type_name: type_name.into(), source }
    }

    /// As the error of a call, whose arguments it is.
    #[cold]
    pub(crate) fn into_arguments_error(self, trustee: ThreadId) -> DelegateError {
        let BadValue { step, type_name, source } = self;
        DelegateError::BadArguments { step, type_name, trustee, source }
    }

    /// As the error of a call, whose result it is.
    #[cold]
    pub(crate) fn into_result_error(self, trustee: ThreadId) -> DelegateError {
        let BadValue { step, type_name, source } = self;
        DelegateError::BadResult { step, type_name, trustee, source }
    }
}

/// Why a trustee has no result, as its reply says it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// Nothing ran.
    Refused(String),
    /// Nothing ran, since the arguments could not be decoded.
    Arguments(BadValue),
    /// The closure ran.
    Result(BadValue),
}

impl Refusal {
    /// As the error of a call of `trustee`.
    #[cold]
    pub(crate) fn at(self, trustee: ThreadId) -> DelegateError {
        match self {
            Refusal::Refused(reason) => DelegateError::Refused { trustee, reason },
            Refusal::Arguments(bad) => bad.into_arguments_error(trustee),
            Refusal::Result(bad) => bad.into_result_error(trustee),
        }
    }
}

/// So that a fiber or a closure that joins fibers can use `?` and return one kind of error: the error
/// of the request that the fiber belongs to, if that failed.
impl From<JoinError> for DelegateError {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Delegate(error) => match error.downcast::<DelegateError>() {
                Ok(error) => *error,
                Err(other) => DelegateError::Join(Chain(&*other).to_string()),
            },
            other => DelegateError::Join(Chain(&other).to_string()),
        }
    }
}

pub(crate) const OUTSIDE: DelegateError = DelegateError::NoRack(Cow::Borrowed(
    "this is not a thread of a rack (a `std::thread` or an async task never runs on one, even if it is \
     started inside `Rack::run`): call this in the closure given to `Rack::run` or in a fiber of \
     `gossamer::spawn`; other threads take a `Handle::current()` along and call its `spawn`, or use \
     `apply_async` (feature `tokio`)",
));
/// The error of what needs a rack, on a thread that belongs to no rack.
#[cold]
#[inline(never)]
pub fn outside() -> Box<DelegateError> {
    Box::new(OUTSIDE)
}

pub(crate) const NO_SUCH_THREAD: DelegateError =
    DelegateError::NoRack(Cow::Borrowed("the trust's trustee is not a thread of this rack"));
pub(crate) const NOT_SENT: DelegateError = DelegateError::NoRack(Cow::Borrowed(
    "the request was not sent: encoding its arguments panicked",
));
pub(crate) const RACK_ENDED: DelegateError =
    DelegateError::NoRack(Cow::Borrowed("the rack has ended"));
pub(crate) const ITS_RACK_ENDED: DelegateError = DelegateError::NoRack(Cow::Borrowed(
    "the rack of this trust has ended, and its property with it: a trust cannot be used after its \
     `Rack::run`, nor in a later rack",
));

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_prints_one_level_and_chain_all() {
        let source = CodecError("too deep".to_owned());
        let trustee = ThreadId { host: HostId(1), thread: 2 };
        let error = BadValue::unencodable::<Vec<u8>>(source).into_arguments_error(trustee);
        let expected =
            format!("cannot encode the arguments, a `alloc::vec::Vec<u8>`, for {trustee}");
        assert_eq!(error.to_string(), expected);
        assert_eq!(Chain(&error).to_string(), format!("{expected}: too deep"));
    }

    #[test]
    fn a_delegate_error_is_56_bytes() {
        assert_eq!(size_of::<DelegateError>(), 56);
    }

    #[test]
    fn a_failed_join_keeps_the_error_of_its_request() {
        let lost = DelegateError::PeerLost {
            host: HostId(3),
            reason: LossReason::Connection("cut".into()),
        };
        let joined = JoinError::Delegate(Box::new(lost));
        assert!(matches!(joined.into(), DelegateError::PeerLost { host: HostId(3), .. }));
        let joined = DelegateError::from(JoinError::Cancelled);
        assert!(matches!(&joined, DelegateError::Join(_)), "{joined}");
    }
}

//! What senders get for calls that have no result.

use trust_core::DelegateError;

use crate::error::{JamError, Refusal};
use crate::receiver::Failure;
use crate::sender::Code;

/// `None` if the code is not there.
#[cold]
pub(super) fn failed(code: &Code, failure: Failure) -> Option<JamError> {
    match failure {
        Failure::NeedCode => None,
        Failure::Panicked(panicked) => {
            Some(JamError::Panicked { jam: code.name().to_owned(), source: panicked })
        }
        Failure::Refused(refusal) => Some(refused(code, refusal)),
    }
}

/// A call that had its code ran into others that took its place.
#[cold]
pub(super) fn no_room(code: &Code) -> JamError {
    refused(code, Refusal::NoRoom { bytes: code.len() })
}

#[cold]
pub(super) fn refused(code: &Code, source: Refusal) -> JamError {
    JamError::Refused { jam: code.name().to_owned(), source: source.explained(code.types()) }
}

#[cold]
pub(super) fn undelivered(code: &Code, source: DelegateError) -> JamError {
    JamError::Delegate { jam: code.name().to_owned(), source }
}

//! [`Outcome`]: how a request ended, with its result where there is one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use primitive::SharedBytes;
use primitive::sync::Ordering;
use serde::de::DeserializeOwned;
use transport_api::ThreadId;

use crate::closure::plain_bytes::{PlainBytes, reply_words, value_of};
use crate::codec;
use crate::error::{BadValue, CodecError, DelegateError, PanicReport, Refusal};
use crate::wire::copy::copied_out;
use crate::wire::words::{Status, WORD};

/// How a request ended, as its completion gets it.
#[derive(Clone, Copy)]
pub(crate) enum Outcome<'a> {
    /// The result took the request's place.
    InPlace(InPlace<'a>),
    /// A reply with a payload of its own.
    Reply { trustee: ThreadId, status: Status, payload: &'a [u8] },
    /// A malformed reply.
    Malformed { trustee: ThreadId },
    /// There will be no reply.
    Failed(&'a DelegateError),
}

/// A result in its request's place.
#[derive(Clone, Copy)]
pub(crate) struct InPlace<'a> {
    /// Its first word, which is all of a result of one word.
    pub(super) value: u64,
    /// The word behind that in the memory of the pair, where an encoded result has its bytes, as
    /// many as the first word says.
    pub(super) at: usize,
    /// Words that it may have there.
    pub(super) words: usize,
    pub(super) pair: &'a SharedBytes,
    pub(super) trustee: ThreadId,
}

impl Outcome<'_> {
    /// The result, if it is a word in its request's place; else it is to be had by
    /// [`result`](Self::result). This is what makes a small reply cheap.
    #[inline(always)]
    pub(crate) fn at_hand<U: 'static>(&self) -> Option<U> {
        match self {
            Outcome::InPlace(place) => codec::from_plain(|| place.value),
            _ => None,
        }
    }

    /// The result of a call of plain bytes, if it is in its request's place.
    #[inline(always)]
    pub(crate) fn plain_bytes<R: PlainBytes>(&self) -> Option<R> {
        match self {
            Outcome::InPlace(place) if place.words >= const { reply_words::<R>() } => {
                Some(value_of(|index| match index {
                    0 => place.value,
                    _ => place.pair.words().load(place.at + index - 1, Ordering::Relaxed),
                }))
            }
            _ => None,
        }
    }

    /// How a call of plain bytes ended that has no result in its request's place: by its own error,
    /// or otherwise.
    #[cold]
    #[inline(never)]
    pub(crate) fn plain_failure<E: DeserializeOwned>(self) -> Result<E, DelegateError> {
        match self {
            Outcome::Reply { trustee, status: Status::Failed, payload } => {
                codec::decode(payload).map_err(undecodable::<E>(trustee))
            }
            Outcome::Reply { trustee, status, payload } if status != Status::Done => {
                Err(failure(trustee, status, payload))
            }
            Outcome::Reply { trustee, .. }
            | Outcome::Malformed { trustee }
            | Outcome::InPlace(InPlace { trustee, .. }) => Err(malformed(trustee)),
            Outcome::Failed(error) => Err(error.clone()),
        }
    }

    /// The result, decoded.
    #[inline(always)]
    pub(crate) fn result<U: DeserializeOwned + 'static>(self) -> Result<U, DelegateError> {
        match self.at_hand() {
            Some(value) => Ok(value),
            None => self.other_result(),
        }
    }

    /// As `read`, which decodes an `R` of this outcome; a panic of the value's own code is an error.
    #[cold]
    pub(crate) fn caught<R, U>(
        self,
        read: impl FnOnce(Self) -> Result<U, DelegateError>,
    ) -> Result<U, DelegateError> {
        catch_unwind(AssertUnwindSafe(|| read(self))).unwrap_or_else(|panic| match self {
            Outcome::InPlace(InPlace { trustee, .. })
            | Outcome::Reply { trustee, .. }
            | Outcome::Malformed { trustee } => {
                Err(undecodable::<R>(trustee)(CodecError::of_panic(panic)))
            }
            // Nothing is decoded.
            Outcome::Failed(_) => resume_unwind(panic),
        })
    }

    /// The result, when it is not one that travels as a word, or not a result.
    #[inline(never)]
    fn other_result<U: DeserializeOwned + 'static>(self) -> Result<U, DelegateError> {
        match self {
            Outcome::InPlace(InPlace { value, at, words, pair, trustee }) => {
                match usize::try_from(value) {
                    Ok(len) if len <= words * WORD => copied_out(pair, at * WORD, len, |bytes| {
                        codec::decode(bytes).map_err(undecodable::<U>(trustee))
                    }),
                    _ => Err(malformed(trustee)),
                }
            }
            Outcome::Reply { trustee, status, payload } => result(trustee, status, payload),
            Outcome::Malformed { trustee } => Err(malformed(trustee)),
            Outcome::Failed(error) => Err(error.clone()),
        }
    }
}

#[cold]
fn malformed(trustee: ThreadId) -> DelegateError {
    let reason = "its reply makes no sense: it is not the same build".to_owned();
    DelegateError::Refused { trustee, reason }
}

/// The error of a caller that cannot decode the result of `trustee`, a `U`.
#[cold]
fn undecodable<U>(trustee: ThreadId) -> impl Fn(CodecError) -> DelegateError {
    move |source| BadValue::undecodable::<U>(source).into_result_error(trustee)
}

/// What a reply's payload means.
fn result<U: DeserializeOwned + 'static>(
    trustee: ThreadId,
    status: Status,
    payload: &[u8],
) -> Result<U, DelegateError> {
    match status {
        Status::Done => match codec::plain_words::<U>() {
            None => codec::decode(payload).map_err(undecodable::<U>(trustee)),
            Some(_) => codec::plain_from_bytes(payload).map_err(undecodable::<U>(trustee)),
        },
        // Only calls of plain bytes have errors of their own.
        Status::Failed => Err(malformed(trustee)),
        Status::Panicked | Status::Refused => Err(failure(trustee, status, payload)),
    }
}

#[cold]
#[inline(never)]
fn failure(trustee: ThreadId, status: Status, payload: &[u8]) -> DelegateError {
    let decoded = match status {
        Status::Panicked => codec::decode::<PanicReport>(payload)
            .map(|report| DelegateError::Panicked { trustee, report }),
        _ => codec::decode::<Refusal>(payload).map(|refusal| refusal.at(trustee)),
    };
    decoded.unwrap_or_else(|_| malformed(trustee))
}

//! [`Outcome`]: how a request ended, with its result where there is one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use primitive::SharedBytes;
use primitive::sync::Ordering;
use serde::de::DeserializeOwned;
use transport_api::ThreadId;

use crate::closure::plain_bytes::{PlainBytes, result_words, value_of};
use crate::codec::{self, AsView};
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
    /// The word after that in the memory of the pair, where an encoded result has its bytes, as
    /// many as the first word says.
    pub(super) at: usize,
    /// Words that it may have there.
    pub(super) words: usize,
    pub(super) pair: &'a SharedBytes,
    pub(super) trustee: ThreadId,
}

impl<'a> InPlace<'a> {
    /// The result of the request whose head was at this word of `pair`, with so many words after it.
    #[inline(always)]
    pub(super) fn of(
        (head, words): (usize, usize),
        pair: &'a SharedBytes,
        trustee: ThreadId,
    ) -> Self {
        let value = pair.words().load(head, Ordering::Relaxed);
        InPlace { value, at: head + 1, words, pair, trustee }
    }
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
            Outcome::InPlace(place) if 1 + place.words >= const { result_words::<R>() } => {
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

impl Outcome<'_> {
    /// Hands what the trustee has sent of an `R`, seen where it lies, to `read`.
    #[inline]
    pub(crate) fn view<R, U>(
        self,
        read: impl FnOnce(Result<Option<R::View<'_>>, DelegateError>) -> U,
    ) -> U
    where
        R: AsView + ?Sized,
    {
        match self {
            Outcome::InPlace(InPlace { value, at, words, pair, trustee }) => {
                match usize::try_from(value) {
                    Ok(len) if len <= words * WORD => copied_out(pair, at * WORD, len, |bytes| {
                        read(decode_view::<R>(trustee, bytes))
                    }),
                    _ => read(Err(malformed(trustee))),
                }
            }
            Outcome::Reply { trustee, status: Status::Done, payload } => {
                read(decode_view::<R>(trustee, payload))
            }
            Outcome::Reply { trustee, status: Status::Failed | Status::Later, .. }
            | Outcome::Malformed { trustee } => read(Err(malformed(trustee))),
            Outcome::Reply { trustee, status, payload } => {
                read(Err(failure(trustee, status, payload)))
            }
            Outcome::Failed(error) => read(Err(error.clone())),
        }
    }
}

/// The view that a peer says these bytes are. A panic of its own code is an error.
#[inline]
fn decode_view<'a, R: AsView + ?Sized>(
    trustee: ThreadId,
    bytes: &'a [u8],
) -> Result<Option<R::View<'a>>, DelegateError> {
    catch_unwind(|| codec::decode::<Option<R::View<'a>>>(bytes))
        .unwrap_or_else(|panic| Err(CodecError::of_panic(panic)))
        .map_err(undecodable::<R::View<'a>>(trustee))
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
        Status::Done => codec::decode_from_vec(payload).map_err(undecodable::<U>(trustee)),
        // Only calls of plain bytes have errors of their own, and only launches later results.
        Status::Failed | Status::Later => Err(malformed(trustee)),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use transport_api::HostId;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Named<'a> {
        name: &'a str,
        bytes: Option<&'a [u8]>,
    }
    struct Both;
    impl AsView for Both {
        type View<'a> = Named<'a>;
        fn as_view(&self) -> Named<'_> {
            Named { name: "name", bytes: Some(b"bytes") }
        }
    }

    const TRUSTEE: ThreadId = ThreadId { host: HostId(1), thread: 0 };

    /// Bytes of the slices that a view shows, each of which is read.
    fn seen(outcome: Outcome<'_>) -> [Option<usize>; 3] {
        let length = |bytes: &[u8]| std::hint::black_box(bytes.to_vec()).len();
        let bytes = outcome.view::<[u8], _>(|v| Some(length(v.ok()??)));
        let text = outcome.view::<str, _>(|v| v.ok()?.map(|t| t.len() + t.chars().count()));
        let both = outcome.view::<Both, _>(|v| {
            let both = v.ok()??;
            Some(both.name.len() + both.bytes.map_or(0, length))
        });
        [bytes, text, both]
    }

    proptest! {
        /// A peer writes any length and any bytes: what is seen lies inside what came.
        #[test]
        fn views_of_any_reply_stay_inside_it(
            // A header of the value in front, which most random bytes are not.
            body in proptest::collection::vec(0u8..8, 0..60),
            claimed: u16,
            fields in 0u64..4,
            trusts in 0u64..2,
            value in prop_oneof![0u64..90, any::<u64>()],
            words in 0usize..9,
            status in 0usize..2,
        ) {
            let exact = [body.len() as u64, u64::from(claimed)][usize::from(claimed % 3 == 0)];
            let header = exact | fields << 32 | trusts << 44;
            let bytes = [&header.to_le_bytes()[..], &body].concat();
            let pair = SharedBytes::heap(256);
            pair.write_from(8, &bytes);
            let place = InPlace { value, at: 1, words, pair: &pair, trustee: TRUSTEE };
            for found in seen(Outcome::InPlace(place)).into_iter().flatten() {
                prop_assert!(value as usize <= words * WORD && found < value as usize);
            }
            let status = [Status::Done, Status::Failed][status];
            let payload = &bytes[..];
            for found in seen(Outcome::Reply { trustee: TRUSTEE, status, payload }).into_iter().flatten() {
                prop_assert!(status == Status::Done && found < body.len());
            }
        }
    }

    #[test]
    fn a_view_is_what_its_trustee_encoded() {
        let mut encoded = codec::Encoded::<0>::new();
        encoded.encode(&Some(Both.as_view())).expect("bytes");
        let payload = encoded.bytes();
        let reply = Outcome::Reply { trustee: TRUSTEE, status: Status::Done, payload };
        let shown = reply.view::<Both, _>(|view| {
            let view = view.expect("a view").expect("a value");
            (view.name.to_owned(), view.bytes.map(<[u8]>::to_vec))
        });
        assert_eq!(shown, ("name".to_owned(), Some(b"bytes".to_vec())));
        // Seen as something else, it is an error, not other bytes.
        assert!(reply.view::<str, _>(|view| view.is_err()));
    }
}

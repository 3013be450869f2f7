//! What a trustee does with each call of a jam, whatever names it: checks, and the [`Call`] that the
//! jam gets.

use jam_abi::entry::{Part, PropertyPart, Types};
use jam_abi::{Call, ContextData, code};
use trust_core::{InPlace, PlainBytes, PlainCalls};

use crate::error::Refusal;
use crate::plain_bytes::Value;
use crate::receiver::Failure;
use crate::symbols::export::Open;

/// Makes a call of a jam with the types of the parameters, and has `enter` run it, which gets the
/// signature. `args` has the length of `A`; both parts are aligned for calls.
///
/// While `enter` runs, the call is valid for jams of the signature: the property is a `T`, which has
/// the name that the signature covers, and nothing else refers to it; the other parts have the types
/// of the signature. What is left is its own: that the thread is in delegated context.
#[inline(always)]
pub(super) fn run<T: Open, P: PropertyPart, A: Part, E: Part, R: Part, F: From<Failure>>(
    property: &mut T,
    context: &ContextData,
    args: &[u8],
    payload: &[u8],
    enter: impl Enter<F>,
) -> Result<R, F> {
    debug_assert_eq!(args.len(), A::BYTES);
    if const { !is_for::<T, P>() } {
        return Err(wrong_property(P::NAME, T::NAME).into());
    }
    // A peer wrote the length, and entries in C do not compare it themselves.
    if !is_whole::<E>(payload.len()) {
        return Err(parts_of_elements().into());
    }
    let mut reply = Value::<R>::zeroed();
    let mut call = Call {
        property: std::ptr::from_mut(property).cast(),
        args: args.as_ptr(),
        args_len: A::BYTES,
        payload: if payload.is_empty() { args.as_ptr() } else { payload.as_ptr() },
        payload_len: payload.len(),
        reply: reply.as_mut_ptr(),
        reply_capacity: R::BYTES,
        reply_len: 0,
        context,
        count: 1,
        done: 0,
        step: 0,
    };
    enter.enter(Types::<P, A, E, R>::SIGNATURE, &mut call)?;
    Ok(reply.get())
}

/// Whether the parts of calls of these types may lie in a batch, where they are aligned to words.
pub(super) const fn fits_in_place<A: Part, R: Part>() -> bool {
    align_of::<A>() <= 8 && align_of::<R>() <= 8 && A::BYTES <= Call::SHARED_ARGS
}

/// As [`run`], of consecutive calls that have no payload, and whose types [fit](fits_in_place): has
/// `enter` run all of them as one run of the jam, where they lie, and ends those that have a result.
/// `Reply` is an `R` and nothing else.
///
/// # Errors
/// Why the first of those failed that have not ended.
#[inline(always)]
pub(super) fn run_all<T: Open, P: PropertyPart, A: Part, E: Part, R: Part, Reply: PlainBytes>(
    property: &mut T,
    context: &ContextData,
    calls: &mut PlainCalls<'_, '_, Reply>,
    enter: impl Enter<Box<Failure>>,
) -> Result<(), Box<Failure>> {
    const { assert!(size_of::<Reply>() == R::BYTES && align_of::<Reply>() == align_of::<R>()) };
    debug_assert!(fits_in_place::<A, R>());
    if const { !is_for::<T, P>() } {
        return Err(Box::new(wrong_property(P::NAME, T::NAME)));
    }
    let InPlace { first, step, count } = calls.in_place();
    let mut call = Call {
        property: std::ptr::from_mut(property).cast(),
        args: first,
        args_len: A::BYTES,
        // Empty, and aligned for every element.
        payload: std::ptr::without_provenance(Call::ALIGNMENT),
        payload_len: 0,
        reply: first,
        reply_capacity: R::BYTES,
        reply_len: 0,
        context,
        count,
        done: 0,
        step,
    };
    let ended = enter.enter(Types::<P, A, E, R>::SIGNATURE, &mut call);
    match ended {
        Ok(()) => calls.end_in_place(count),
        // The jam has written it: the call that failed is one of these.
        Err(_) => calls.end_in_place(call.done.min(count - 1)),
    }
    ended
}

/// Runs a call that [`run`] has made. Not a closure: calls by handle, the common ones, are to have it
/// inlined, whatever its size.
pub(super) trait Enter<F> {
    /// Runs it, if what it names has this signature.
    fn enter(self, signature: u64, call: &mut Call) -> Result<(), F>;
}

impl<F, G: FnOnce(u64, &mut Call) -> Result<(), F>> Enter<F> for G {
    #[inline]
    fn enter(self, signature: u64, call: &mut Call) -> Result<(), F> {
        self(signature, call)
    }
}

/// Whether a jam with the property `P` may run on a `T`.
pub(super) const fn is_for<T: Open, P: PropertyPart>() -> bool {
    let (wanted, found) = (P::NAME.as_bytes(), T::NAME.as_bytes());
    if wanted.is_empty() {
        return true;
    }
    let mut is_same = wanted.len() == found.len();
    let mut at = 0;
    while is_same && at < wanted.len() {
        is_same = wanted[at] == found[at];
        at += 1;
    }
    is_same
}

/// Whether a payload of `len` bytes consists of whole elements.
#[inline(always)]
fn is_whole<E: Part>(len: usize) -> bool {
    if E::BYTES == 0 { len == 0 } else { len.is_multiple_of(E::BYTES) }
}

#[cold]
fn parts_of_elements() -> Failure {
    Refusal::Entry { code: code::PAYLOAD_LENGTH }.into()
}

#[cold]
fn wrong_property(wanted: &str, found: &str) -> Failure {
    Refusal::WrongProperty { wanted: wanted.to_owned(), found: found.to_owned() }.into()
}

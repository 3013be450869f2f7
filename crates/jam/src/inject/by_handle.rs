//! Calls that name a jam by its [handle](crate::handles). They are plain: past the codec, without an
//! allocation on either side unless they are long.
//!
//! ```text
//!   without a payload   | word | arguments |
//!   with one            | word | its length, 0 | arguments, to a multiple of 16 | payload |
//! ```

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use jam_abi::entry::{Part, PropertyPart, Types};
use jam_abi::{Call, ContextData, code};
use serde::{Deserialize, Serialize};
use trust_core::{DelegateError, PlainBytes, PlainCall, Trust};

use crate::error::{JamError, Refusal};
use crate::handles;
use crate::inject::{failed, is_for, is_whole, refused, send_code_then, wrong_property};
use crate::plain_bytes::{Payload, Value};
use crate::receiver::by_handle::Running;
use crate::receiver::{Failure, receiver};
use crate::sender::{Code, Inner, Mode, Sendable};
use crate::symbols::export::Open;

/// A result as it travels.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Reply<R>(R);

// SAFETY: a part has no padding, and any bytes are a value of it.
unsafe impl<R: Part> PlainBytes for Reply<R> {}

impl<R> Reply<R> {
    #[inline(always)]
    pub(super) fn value(self) -> R {
        self.0
    }
}

/// Why a call has no result. One that found its jam evicted comes back with all that its sender needs
/// to send it again, so that senders keep nothing of the calls that go well.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Missed<T: 'static, A: Part> {
    pub(super) failure: Box<Failure>,
    call: Option<(Value<A>, Payload, Trust<T>)>,
}

impl<T: 'static, A: Part> Missed<T, A> {
    #[cold]
    #[inline(never)]
    fn new(failure: Box<Failure>, args: &[u8], payload: &[u8]) -> Box<Self> {
        let is_evicted = *failure == Failure::NeedCode;
        let call = is_evicted.then(|| {
            let args = Value::of_bytes(args)?;
            Some((args, Payload::of_bytes(payload), trust_core::served()?))
        });
        Box::new(Self { failure, call: call.flatten() })
    }
}

/// How a call ends for its sender.
type Ended<T, J> = Result<
    Result<Reply<<J as Sendable>::Reply>, Box<Missed<T, <J as Sendable>::Args>>>,
    DelegateError,
>;

/// A kind of call: on a property of type `T`, of a jam with these types.
type Of<T, Types> = PhantomData<fn(T, Types)>;

/// A call without a payload.
struct Short<T, P, A, E, R>(Of<T, Types<P, A, E, R>>);
type ShortOf<T, J> = Short<
    T,
    <J as Sendable>::Property,
    <J as Sendable>::Args,
    <J as Sendable>::Element,
    <J as Sendable>::Reply,
>;

impl<T, P, A, E, R> PlainCall<T> for Short<T, P, A, E, R>
where
    T: Open,
    P: PropertyPart + 'static,
    A: Part,
    E: Part,
    R: Part,
{
    const BYTES: Option<usize> = Some(A::BYTES);
    type Run = Running;
    type Reply = Reply<R>;
    type Error = Box<Missed<T, A>>;

    #[inline(always)]
    fn serve(
        running: &mut Running,
        property: &mut T,
        word: u64,
        bytes: &[u8],
    ) -> Result<Reply<R>, Box<Missed<T, A>>> {
        match bytes.get(..A::BYTES) {
            Some(args) => run::<T, P, A, E, R>(running, property, word, args, &[]),
            None => Err(too_short(code::ARGS_LENGTH)),
        }
    }
}

/// A call with a payload.
struct Long<T, P, A, E, R>(Of<T, Types<P, A, E, R>>);
type LongOf<T, J> = Long<
    T,
    <J as Sendable>::Property,
    <J as Sendable>::Args,
    <J as Sendable>::Element,
    <J as Sendable>::Reply,
>;

/// What is in front of a payload, without padding: it has been zeroed, and is written through
/// pointers only.
#[repr(C, align(16))]
struct Front<A> {
    payload_len: u64,
    zero: u64,
    args: A,
}

impl<T, P, A, E, R> PlainCall<T> for Long<T, P, A, E, R>
where
    T: Open,
    P: PropertyPart + 'static,
    A: Part,
    E: Part,
    R: Part,
{
    const BYTES: Option<usize> = None;
    type Run = Running;
    type Reply = Reply<R>;
    type Error = Box<Missed<T, A>>;

    #[inline(always)]
    fn serve(
        running: &mut Running,
        property: &mut T,
        word: u64,
        bytes: &[u8],
    ) -> Result<Reply<R>, Box<Missed<T, A>>> {
        let Some((front, behind)) = bytes.split_at_checked(size_of::<Front<A>>()) else {
            return Err(too_short(code::ARGS_LENGTH));
        };
        let args = &front[16..16 + A::BYTES];
        let len = front.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
        match usize::try_from(len).ok().and_then(|len| behind.get(..len)) {
            Some(payload) => run::<T, P, A, E, R>(running, property, word, args, payload),
            None => Err(too_short(code::PAYLOAD_LENGTH)),
        }
    }
}

#[cold]
fn too_short<T: 'static, A: Part>(code: u32) -> Box<Missed<T, A>> {
    Missed::new(Box::new(Refusal::Entry { code }.into()), &[], &[])
}

/// Runs a jam at the trustee. `args` has the length of `A`; both parts are aligned for calls.
#[inline(always)]
fn run<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    running: &mut Running,
    property: &mut T,
    word: u64,
    args: &[u8],
    payload: &[u8],
) -> Result<Reply<R>, Box<Missed<T, A>>> {
    let failed = |failure| Missed::new(failure, args, payload);
    if const { !is_for::<T, P>() } {
        return Err(failed(Box::new(wrong_property(P::NAME, T::NAME))));
    }
    // A peer wrote the length, and entries in C do not compare it themselves.
    if !is_whole::<E>(payload.len()) {
        return Err(failed(Box::new(Refusal::Entry { code: code::PAYLOAD_LENGTH }.into())));
    }
    let (handle, host) = handles::of_word(word);
    let context: ContextData = receiver().context(host);
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
        context: &raw const context,
    };
    let signature = Types::<P, A, E, R>::SIGNATURE;
    // SAFETY: the property is a `T`, which has the name that the signature covers, and this call has
    // it for itself; the other parts have the types of the signature and live until the return; a
    // delegated call does not wait.
    match unsafe { running.run(handle, signature, &mut call) } {
        Ok(()) => Ok(Reply(reply.get())),
        Err(failure) => Err(failed(failure)),
    }
}

/// The parts of a call with a payload, in front of that.
fn front<A: Part, R>(args: A, payload_len: usize, send: impl FnOnce(&[u8]) -> R) -> R {
    let mut front = MaybeUninit::<Front<A>>::uninit();
    let place = front.as_mut_ptr();
    // SAFETY: inside the place; a part has no padding.
    unsafe {
        place.write_bytes(0, 1);
        (&raw mut (*place).payload_len).write(payload_len as u64);
        let value = Value::new(args);
        let to = (&raw mut (*place).args).cast::<u8>();
        std::ptr::copy_nonoverlapping(value.as_ptr(), to, A::BYTES);
    }
    #[allow(clippy::disallowed_methods, reason = "a value of this thread")]
    // SAFETY: all bytes were zeroed, and only bytes have been written over them since.
    send(unsafe { std::slice::from_raw_parts(place.cast::<u8>(), size_of::<Front<A>>()) })
}

/// Calls a jam by the word of its handle, and waits; `None` if the property is this thread's own.
#[inline(always)]
#[track_caller]
pub(super) fn call<T: Open, J: Sendable>(
    trust: &Trust<T>,
    word: u64,
    args: J::Args,
    payload: &[J::Element],
) -> Option<Ended<T, J>> {
    if payload.is_empty() {
        return trust.plain_call::<ShortOf<T, J>>(word, Value::new(args).bytes(), &[]);
    }
    let payload = bytes_of(payload);
    front(args, payload.len(), |front| trust.plain_call::<LongOf<T, J>>(word, front, &[payload]))
}

/// Calls a jam by the word of its handle.
///
/// # Errors
/// `then`, if the property is this thread's own or the thread is of no rack.
#[inline(always)]
pub(super) fn call_then<T: Open, J: Sendable, C, F>(
    trust: &Trust<T>,
    word: u64,
    args: J::Args,
    payload: &[J::Element],
    code: C,
    then: F,
) -> Result<(), F>
where
    C: Into<Code> + std::ops::Deref<Target = Inner> + 'static,
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    let wrap = move |then: F| {
        move |ended: Ended<T, J>| match ended {
            Ok(Ok(reply)) => then(Ok(reply.value())),
            other => fail_then::<T, J, F>(code.into(), other, then),
        }
    };
    if payload.is_empty() {
        let args = Value::new(args);
        return trust.plain_call_then::<ShortOf<T, J>, _, _>(word, args.bytes(), &[], then, wrap);
    }
    let payload = bytes_of(payload);
    front(args, payload.len(), |front| {
        trust.plain_call_then::<LongOf<T, J>, _, _>(word, front, &[payload], then, wrap)
    })
}

/// Ends a call without a result: with the error, or by sending it again with the code.
#[cold]
#[inline(never)]
fn fail_then<T: Open, J: Sendable, F>(code: Code, ended: Ended<T, J>, then: F)
where
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    let missed = match ended {
        Ok(Ok(reply)) => return then(Ok(reply.value())),
        Ok(Err(missed)) => missed,
        Err(source) => {
            return then(Err(JamError::Delegate { jam: code.name().to_owned(), source }));
        }
    };
    match (failed(&code, *missed.failure), missed.call) {
        (Some(error), _) => then(Err(error)),
        (None, Some((args, payload, trust))) => {
            send_code_then::<T, J>(&trust, code, Mode::Automatic, args.get(), payload, then);
        }
        (None, None) => then(Err(refused(&code, Refusal::Entry { code: code::ARGS_LENGTH }))),
    }
}

/// The bytes of a payload.
#[inline(always)]
#[allow(clippy::disallowed_methods, reason = "a slice of this process, as bytes")]
fn bytes_of<E: Part>(elements: &[E]) -> &[u8] {
    // SAFETY: all bytes of a part are initialised: it has no padding.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

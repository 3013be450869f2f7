//! Calls that name a jam by its [handle](crate::handles). They are plain: past the codec, without an
//! allocation on either side unless they are long. Their word is that of the handle, which a batch has
//! once where several consecutive calls have the same.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::sync::Arc;

use jam_abi::entry::{Part, PropertyPart, Types};
use jam_abi::{Call, Element, Jam, code};
use serde::{Deserialize, Serialize};
use trust_core::{DelegateError, PlainBytes, PlainCall, PlainCalls, PlainEnd, Trust};

use crate::error::{JamError, Refusal};
use crate::handles;
use crate::inject::by_digest::send_code_then;
use crate::inject::errors::{failed, refused, undelivered};
use crate::inject::layout::{CallParts, with_front};
use crate::inject::serve::{self, Enter};
use crate::plain_bytes::{Payload, Value, bytes_of};
use crate::receiver::Failure;
use crate::receiver::running::{Again, Entered, Ready, Running};
use crate::sender::{Code, Inner, Mode, Sendable, code_of};
use crate::symbols::export::Open;

/// A result as it travels.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Reply<R>(R);

// SAFETY: a part has no padding, and any bytes are a value of it.
unsafe impl<R: Part> PlainBytes for Reply<R> {}

impl<R> Reply<R> {
    #[inline(always)]
    pub(super) fn new(reply: R) -> Self {
        Reply(reply)
    }

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
pub(super) type Ended<T, J> = Result<
    Result<Reply<<J as Sendable>::Reply>, Box<Missed<T, <J as Sendable>::Args>>>,
    DelegateError,
>;

/// The types of a jam, which name a kind of call on both sides: two jams of the same types have the same.
pub(super) type TypesOf<J> = Types<
    <J as Sendable>::Property,
    <J as Sendable>::Args,
    <J as Sendable>::Element,
    <J as Sendable>::Reply,
>;

/// A jam with the types of `J`, which borrows nothing.
pub(super) type JamOf<J> = Jam<
    <J as Sendable>::Property,
    <J as Sendable>::Args,
    <J as Sendable>::Element,
    <J as Sendable>::Reply,
>;

/// A call without a payload, of a jam with the types `S`.
struct Short<S>(PhantomData<S>);

impl<T: Open, P: PropertyPart + 'static, A: Part, E: Part, R: Part> PlainCall<T>
    for Short<Types<P, A, E, R>>
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
        run::<T, P, A, E, R>(running, property, word, bytes, &[])
    }

    #[inline(always)]
    fn serve_run(
        property: &mut T,
        word: u64,
        calls: &mut PlainCalls<'_, '_, Reply<R>>,
    ) -> Result<(), Box<Missed<T, A>>> {
        if const { serve::fits_in_place::<A, R>() } && !is_local(word) {
            let entered = Entered::of_process();
            if let Some(ready) = entered.ready(word, Types::<P, A, E, R>::SIGNATURE) {
                let context = entered.context(word);
                let ended = serve::run_all::<T, P, A, E, R, _>(property, &context, calls, ready);
                return ended.map_err(|failure| missed_in_run(failure, calls));
            }
        }
        other_run::<T, P, A, E, R>(property, word, calls)
    }
}

/// Whether the word is that of a Local Function.
#[inline(always)]
fn is_local(word: u64) -> bool {
    handles::is_local(handles::of_word(word).0)
}

/// Serves a run of a Local Function, or of a jam that is not ready to run.
#[inline(never)]
fn other_run<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    property: &mut T,
    word: u64,
    calls: &mut PlainCalls<'_, '_, Reply<R>>,
) -> Result<(), Box<Missed<T, A>>> {
    let running = &mut Running::default();
    if const { serve::fits_in_place::<A, R>() }
        && is_local(word)
        && let Some(again) = running.again_or_find(word, Types::<P, A, E, R>::SIGNATURE)
    {
        let ended = serve::run_all::<T, P, A, E, R, _>(property, again.context(), calls, again);
        return ended.map_err(|failure| missed_in_run(failure, calls));
    }
    one_by_one::<T, P, A, E, R>(running, property, word, calls)
}

/// Serves calls of a run, each with a copy of its arguments, to the first that fails: where their types do
/// not lie in a batch as calls need them, or their jam cannot run as it is linked.
#[inline(never)]
fn one_by_one<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    running: &mut Running,
    property: &mut T,
    word: u64,
    calls: &mut PlainCalls<'_, '_, Reply<R>>,
) -> Result<(), Box<Missed<T, A>>> {
    while calls.left() > 0 {
        let args = arguments_of::<A, R>(calls);
        let reply = run::<T, P, A, E, R>(running, property, word, args.bytes(), &[])?;
        calls.end(&reply);
    }
    Ok(())
}

/// A copy of the arguments of the first call that has not ended.
fn arguments_of<A: Part, R: Part>(calls: &PlainCalls<'_, '_, Reply<R>>) -> Value<A> {
    let mut args = Value::<A>::zeroed();
    calls.copy_arguments(args.bytes_mut());
    args
}

#[cold]
#[inline(never)]
fn missed_in_run<T: 'static, A: Part, R: Part>(
    failure: Box<Failure>,
    calls: &PlainCalls<'_, '_, Reply<R>>,
) -> Box<Missed<T, A>> {
    Missed::new(failure, arguments_of::<A, R>(calls).bytes(), &[])
}

/// A call with a payload, of a jam with the types `S`.
struct Long<S>(PhantomData<S>);

impl<T: Open, P: PropertyPart + 'static, A: Part, E: Part, R: Part> PlainCall<T>
    for Long<Types<P, A, E, R>>
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
        match CallParts::<()>::of::<A>(bytes) {
            Ok(CallParts { args, payload, .. }) => {
                run::<T, P, A, E, R>(running, property, word, args, payload)
            }
            Err(failure) => Err(Missed::new(failure, &[], &[])),
        }
    }
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
    let Some(again) = running.again_or_find(word, Types::<P, A, E, R>::SIGNATURE) else {
        return other::<T, P, A, E, R>(running, property, word, args, payload);
    };
    let ended = serve::run::<T, P, A, E, R, _>(property, again.context(), args, payload, again);
    ended.map(Reply).map_err(|failure| Missed::new(failure, args, payload))
}

/// As [`run`], for a call of what cannot run as it is linked.
#[inline(never)]
fn other<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    running: &mut Running,
    property: &mut T,
    word: u64,
    args: &[u8],
    payload: &[u8],
) -> Result<Reply<R>, Box<Missed<T, A>>> {
    let context = running.context(handles::of_word(word).1);
    // SAFETY: the call is of `serve::run`; a delegated call does not wait.
    let enter = |signature, call: &mut Call| unsafe { running.run(word, signature, call) };
    let ended = serve::run::<T, P, A, E, R, _>(property, &context, args, payload, enter);
    ended.map(Reply).map_err(|failure| Missed::new(failure, args, payload))
}

impl Enter<Box<Failure>> for Ready<'_> {
    #[inline(always)]
    fn enter(self, _: u64, call: &mut Call) -> Result<(), Box<Failure>> {
        // SAFETY: the call is of `serve::run_all`; a delegated call does not wait. It was found with the
        // signature of the calls' types.
        unsafe { self.run(call) }
    }
}

impl Enter<Box<Failure>> for &Again {
    #[inline(always)]
    fn enter(self, _: u64, call: &mut Call) -> Result<(), Box<Failure>> {
        // SAFETY: the call is of `serve::run`; a delegated call does not wait. The signature was compared
        // by the call before, which was of the same kind.
        unsafe { self.run(call) }
    }
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
    let payload = bytes_of(payload);
    if payload.is_empty() {
        return trust.plain_call::<Short<TypesOf<J>>>(word, Value::new(args).bytes(), &[]);
    }
    with_front(payload.len(), 0, (), args, |front| {
        trust.plain_call::<Long<TypesOf<J>>>(word, front, &[payload])
    })
}

/// Where the code of a call's jam is found if the call has no result: a pointer, which is all that the
/// callback of a call keeps beside its caller's.
pub(super) trait CodeOf: 'static {
    fn code(self) -> Result<Code, JamError>;
}

impl CodeOf for &'static Element {
    fn code(self) -> Result<Code, JamError> {
        code_of(self).cloned()
    }
}

impl CodeOf for &'static Inner {
    fn code(self) -> Result<Code, JamError> {
        Ok(self.into())
    }
}

impl CodeOf for Arc<Inner> {
    fn code(self) -> Result<Code, JamError> {
        Ok(self.into())
    }
}

/// What ends a call: `then` gets its result.
struct End<T, J, C, F> {
    code: C,
    then: F,
    _types: PhantomData<fn(T, J)>,
}

impl<T, J, C, F> End<T, J, C, F> {
    #[inline(always)]
    fn new(code: C, then: F) -> Self {
        End { code, then, _types: PhantomData }
    }
}

impl<T, J, C, F> PlainEnd<Reply<J::Reply>, Box<Missed<T, J::Args>>> for End<T, J, C, F>
where
    T: Open,
    J: Sendable + 'static,
    C: CodeOf,
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    #[inline(always)]
    fn end(self, ended: Ended<T, J>) {
        // A result has nothing to drop, which the compiler would look for in a call.
        let ended = ManuallyDrop::new(ended);
        match &*ended {
            Ok(Ok(reply)) => (self.then)(Ok(reply.value())),
            _ => {
                let ended = ManuallyDrop::into_inner(ended);
                fail_then::<T, J, F>(self.code.code(), ended, self.then);
            }
        }
    }
}

/// Calls a jam without a payload, if the last call of the trustee had the same `key`.
///
/// # Errors
/// `then`, if it was not.
#[inline(always)]
pub(super) fn call_again<T: Open, J: Sendable, F>(
    trust: &Trust<T>,
    (key, element): (NonZero<usize>, &'static Element),
    args: J::Args,
    then: F,
) -> Result<(), F>
where
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    let (args, end) = (Value::new(args), End::<T, JamOf<J>, _, F>::new(element, then));
    trust.plain_call_again::<Short<TypesOf<J>>, _>(key, args.bytes(), end).map_err(|end| end.then)
}

/// Calls a jam by the word of its handle, which calls [again](call_again) may follow if it has a key.
///
/// # Errors
/// `then`, if the property is this thread's own or the thread is of no rack.
#[inline(always)]
pub(super) fn call_then<T: Open, J: Sendable, C, F>(
    trust: &Trust<T>,
    word: (u64, Option<NonZero<usize>>),
    args: J::Args,
    payload: &[J::Element],
    code: C,
    then: F,
) -> Result<(), F>
where
    C: CodeOf,
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    let (payload, end) = (bytes_of(payload), End::<T, JamOf<J>, C, F>::new(code, then));
    let sent = if payload.is_empty() {
        let args = Value::new(args);
        trust.plain_call_then::<Short<TypesOf<J>>, _>(word, args.bytes(), &[], end)
    } else {
        with_front(payload.len(), 0, (), args, |front| {
            trust.plain_call_then::<Long<TypesOf<J>>, _>(word, front, &[payload], end)
        })
    };
    sent.map_err(|end| end.then)
}

/// Ends a call without a result: with the error, or by sending it again with the code.
#[cold]
#[inline(never)]
fn fail_then<T: Open, J: Sendable, F>(code: Result<Code, JamError>, ended: Ended<T, J>, then: F)
where
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    let code = match code {
        Ok(code) => code,
        Err(error) => return then(Err(error)),
    };
    let missed = match ended {
        Ok(Ok(reply)) => return then(Ok(reply.value())),
        Ok(Err(missed)) => missed,
        Err(source) => return then(Err(undelivered(&code, source))),
    };
    match (failed(&code, *missed.failure), missed.call) {
        (Some(error), _) => then(Err(error)),
        (None, Some((args, payload, trust))) => {
            send_code_then::<T, J>(&trust, code, Mode::Automatic, args.get(), payload, then);
        }
        (None, None) => then(Err(refused(&code, Refusal::Entry { code: code::ARGS_LENGTH }))),
    }
}

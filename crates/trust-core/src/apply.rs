//! `apply` and its relatives: sending closures to properties (thesis 2.4).

use crate::{
    Trust,
    call::{Apply, MIDDLING, too_large, with_capture},
    codec,
    completion::{Completion, Outcome, Source, kind_of},
    context::Context,
    error::{CodecError, DelegateError},
    invoke::{Delegable, Invoke, Plain, With, check_captures},
    node::{Node, Place, current, with_node},
    outbox::{Payload, Request},
    registry::closure_id,
    wire::WORD,
};
use fiber::FiberId;
use primitive::limits::MESSAGE_BYTES;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    any::type_name,
    cell::{Cell, UnsafeCell},
    marker::PhantomData,
    mem::ManuallyDrop,
    panic::Location,
};

/// What can cross the rack as an argument or a result.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross the rack as an argument or a result",
    label = "not owned data that serde can encode and decode",
    note = "derive `serde::Serialize` and `serde::Deserialize` for types of your own; send owned \
            data (`String`, not `&str`) and trusts instead of references"
)]
pub trait Portable: Serialize + DeserializeOwned + 'static {}
#[diagnostic::do_not_recommend]
impl<V: Serialize + DeserializeOwned + 'static> Portable for V {}

pub(crate) const OUTSIDE: DelegateError = DelegateError::NoRack(
    "a trust can only be used by a fiber of its rack; from other threads use `apply_async`, \
     or spawn a fiber with the rack's handle",
);

impl<T: 'static> Trust<T> {
    /// Runs `closure` on the property and returns its result, waiting for it: the current fiber
    /// is suspended, and others run meanwhile. On the trustee's own thread the closure runs at
    /// once. (Thesis 2.4.1.)
    ///
    /// The closure captures nothing; use [`apply_with`](Self::apply_with) or
    /// [`delegate!`](crate::delegate) to pass values.
    ///
    /// # Panics
    /// If the closure panics, with its message; if the trustee's host is gone; outside a fiber of
    /// the rack; and in delegated context, where waiting is not allowed (thesis 2.3.4).
    /// [`try_apply`](Self::try_apply) returns the first two as errors.
    #[inline(always)]
    #[track_caller]
    pub fn apply<F, U>(&self, closure: F) -> U
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.call(Plain(closure), ()))
    }

    /// As [`apply`](Self::apply), with `arguments` for the closure, which travel with it.
    /// (Thesis 2.4.3.2.)
    ///
    /// # Panics
    /// As [`apply`](Self::apply), and if the arguments cannot be encoded.
    #[inline(always)]
    #[track_caller]
    pub fn apply_with<F, V, U>(&self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.call(With(closure), arguments))
    }

    /// As [`apply`](Self::apply), but failures come back as errors.
    ///
    /// # Errors
    /// [`DelegateError`], when the closure panicked at a remote trustee, when the trustee's host is
    /// gone, or when a value cannot be encoded or decoded.
    ///
    /// # Panics
    /// In delegated context; and if the closure panics on this very thread, where the panic goes
    /// its ordinary way.
    #[inline(always)]
    #[track_caller]
    pub fn try_apply<F, U>(&self, closure: F) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.call(Plain(closure), ())
    }

    /// As [`apply_with`](Self::apply_with), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_apply`](Self::try_apply).
    ///
    /// # Panics
    /// As [`try_apply`](Self::try_apply).
    #[inline(always)]
    #[track_caller]
    pub fn try_apply_with<F, V, U>(&self, closure: F, arguments: V) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.call(With(closure), arguments)
    }

    /// Runs `closure` on the property without waiting; when its result is here, `then` is called
    /// with it, on this thread. Allowed everywhere, also in delegated context. (Thesis 2.4.2.)
    ///
    /// Requests of one thread to one trustee are served in the order they were sent. A fiber waits
    /// here only when there is no room for more requests. If the closure fails, `then` is not
    /// called and the rack is told ([`Incident::Unobserved`](crate::Incident::Unobserved)); use
    /// [`try_apply_then`](Self::try_apply_then) to handle that.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[inline(always)]
    #[track_caller]
    pub fn apply_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(Plain(closure), (), Then(then, PhantomData));
    }

    /// As [`apply_then`](Self::apply_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[inline(always)]
    #[track_caller]
    pub fn apply_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(With(closure), arguments, Then(then, PhantomData));
    }

    /// As [`apply_then`](Self::apply_then), but `then` is also told of failures.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[inline(always)]
    #[track_caller]
    pub fn try_apply_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(Plain(closure), (), Either(then, PhantomData));
    }

    /// As [`apply_with_then`](Self::apply_with_then), but `then` is also told of failures.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[inline(always)]
    #[track_caller]
    pub fn try_apply_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(Result<U, DelegateError>) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(With(closure), arguments, Either(then, PhantomData));
    }

    /// Whether the property lives on the current thread, so that closures run at once.
    #[inline(always)]
    pub fn is_local(&self) -> bool {
        with_node(|node| node.is_some_and(|node| self.is_at(node)))
    }

    #[inline(always)]
    pub(crate) fn is_at(&self, node: &Node) -> bool {
        node.seat == self.home
    }

    /// A call that waits.
    #[inline(always)]
    #[track_caller]
    fn call<I, V>(&self, invoke: I, arguments: V) -> Result<I::Output, DelegateError>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let place = Location::caller();
        match current(self) {
            Some(node) if self.is_at(node) => {
                node.context().check_may_wait("`apply`", place);
                let result = self.run_inline(node, invoke, arguments, place);
                node.run_deferred();
                result
            }
            Some(node) if node.seat.rack() == self.home.rack() => {
                node.context().check_may_wait("`apply`", place);
                node.call(self.target(), invoke, arguments)
            }
            _ => Err(OUTSIDE),
        }
    }

    /// Runs a closure on a property of this thread.
    #[inline(always)]
    pub(crate) fn run_inline<I, V>(
        &self,
        node: &Node,
        invoke: I,
        arguments: V,
        place: Place,
    ) -> Result<I::Output, DelegateError>
    where
        I: Invoke<T, V>,
    {
        let Some(property) = node.properties().find(self.property, self.tag) else {
            return Err(no_such_property(node, self.property));
        };
        let _context = node.context().enter(Context::Inline(place));
        // SAFETY: the property is live and a `T` (its tag is the trust's, which is `T`'s). Nothing
        // else refers to it: only this thread has access, it was in free context until the guard
        // above, and whatever runs inside it finds a context that is not free.
        let property = unsafe { &mut *property.cast::<T>() };
        Ok(invoke.invoke(property, arguments))
    }

    /// A call that does not wait.
    #[inline(always)]
    #[track_caller]
    fn cast<I, V, C>(&self, invoke: I, arguments: V, then: C)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Told<I::Output>,
    {
        let place = Location::caller();
        match current(self) {
            Some(node) if self.is_used_by(node) => {
                node.request(self.target(), invoke, arguments, Tell(then, PhantomData));
            }
            Some(node) if self.is_at(node) => {
                self.cast_inline(node, invoke, arguments, then, place);
            }
            _ => or_raise(Err(OUTSIDE)),
        }
    }

    /// A call that does not wait, of a property of this thread: it runs now, or when the delegated
    /// code that runs now has ended.
    #[inline(always)]
    fn cast_inline<I, V, C>(&self, node: &Node, invoke: I, arguments: V, then: C, place: Place)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Told<I::Output>,
    {
        if node.context().is_free() {
            let result = self.run_inline(node, invoke, arguments, place);
            let context = node.context().enter(Context::Callback);
            node.context().set_callback(kind_of::<Tell<C, I::Output>>());
            then.tell(node, result);
            drop(context);
            node.run_deferred();
        } else {
            // The clone keeps the property until the work is done.
            let trust = self.clone();
            node.run_or_defer(move |node| {
                let result = trust.run_inline(node, invoke, arguments, place);
                let _context = node.context().enter(Context::Callback);
                node.context().set_callback(kind_of::<Tell<C, I::Output>>());
                then.tell(node, result);
            });
        }
    }

    #[inline(always)]
    pub(crate) fn target(&self) -> Target<T> {
        Target { home: self.home.number(), property: self.property, _property: PhantomData }
    }
}

/// A property on another thread, and its type.
pub(crate) struct Target<T> {
    pub(crate) home: u32,
    pub(crate) property: u32,
    pub(crate) _property: PhantomData<fn(T)>,
}

impl Node {
    /// Sends a request and waits for its result.
    #[inline(always)]
    pub(crate) fn call<T, I, V>(
        &self,
        target: Target<T>,
        invoke: I,
        arguments: V,
    ) -> Result<I::Output, DelegateError>
    where
        T: 'static,
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let Some(fiber) = fiber::current() else { return Err(OUTSIDE) };
        let waiter = Waiter::new(fiber);
        self.request(target, invoke, arguments, Wake(&raw const waiter));
        waiter.wait()
    }

    /// Encodes a request and sends it.
    #[inline(always)]
    pub(crate) fn request<T, I, V, C>(
        &self,
        target: Target<T>,
        invoke: I,
        arguments: V,
        completion: C,
    ) where
        T: 'static,
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        if let (0, Some(plain)) = (size_of::<I>(), codec::to_plain(&arguments)) {
            // A closure without bytes is made anew at the trustee, so this one is gone.
            std::mem::forget(invoke);
            let payload = Payload::Plain(plain);
            return self.send_request::<T, I, V, C>(target, payload, completion);
        }
        self.request_encoded(target, invoke, arguments, completion);
    }

    #[inline]
    fn request_encoded<T, I, V, C>(&self, target: Target<T>, invoke: I, arguments: V, completion: C)
    where
        T: 'static,
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        let _stay = self.stay();
        let mut encoded = codec::Encoded::<MIDDLING>::new();
        with_capture(invoke, |capture| encoded.put(capture));
        let encodable = encoded.encode(&arguments).and_then(|()| match encoded.bytes().len() {
            len if len > MESSAGE_BYTES => Err(CodecError(too_large("a request", len))),
            _ => Ok(()),
        });
        if let Err(source) = encodable {
            let error = DelegateError::Codec { what: "encode the arguments", source };
            return completion.complete(Outcome::failed(&Source::Failed(&error)));
        }
        let payload = Payload::Encoded(encoded.bytes());
        self.send_request::<T, I, V, C>(target, payload, completion);
    }

    #[inline(always)]
    fn send_request<T, I, V, C>(&self, target: Target<T>, payload: Payload<'_>, completion: C)
    where
        T: 'static,
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        let request = Request {
            property: target.property,
            closure: closure_id::<Apply<T, V, I>>(),
            payload,
            reply_words: reply_words::<I::Output>(),
        };
        self.send(target.home, request, completion);
    }
}

/// Parks the current fiber until the completion that `send` is given has run.
pub(crate) fn wait<U: Portable>(send: impl FnOnce(Wake<U>)) -> Result<U, DelegateError> {
    let Some(fiber) = fiber::current() else { return Err(OUTSIDE) };
    let waiter = Waiter::new(fiber);
    send(Wake(&raw const waiter));
    waiter.wait()
}

/// Words that the result of a call will probably need; longer results find another place.
#[inline(always)]
fn reply_words<U: 'static>() -> usize {
    let words = const { size_of::<U>().div_ceil(WORD) };
    codec::plain_words::<U>().unwrap_or(if words <= 8 { words } else { 0 })
}

#[cold]
fn no_such_property(node: &Node, number: u32) -> DelegateError {
    DelegateError::Refused {
        trustee: node.me,
        reason: format!("there is no property {number} of the trust's type here"),
    }
}

/// The result of a request; its failure ends the caller. Called by functions that are themselves
/// marked `track_caller`, and never inside a closure, which forgets the mark: so the panic is one of
/// the line that delegated.
#[inline(always)]
#[track_caller]
pub(crate) fn or_raise<U>(result: Result<U, DelegateError>) -> U {
    match result {
        Ok(value) => value,
        Err(error) => raise(&error),
    }
}

/// Ends the caller with the failure of its request, and says where that was delegated: the message
/// outlives the panic's own place when whoever joins the fiber looks at it.
#[cold]
#[inline(never)]
#[track_caller]
fn raise(error: &DelegateError) -> ! {
    if let DelegateError::NoRack(_) = error
        && with_node(|node| node.is_some_and(|node| node.is_closed()))
    {
        // The rack has ended under a fiber that was still waiting: nothing went wrong here.
        std::panic::resume_unwind(Box::new(error.to_string()));
    }
    panic!("{error} (delegated at {})", Location::caller())
}

/// How far a wait has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Pending,
    /// There is a value.
    Done,
    /// There is an error.
    Failed,
}

/// A fiber that waits for a result, on its own stack. This is not a `Result`, because that would be
/// moved in pieces, and the processor waits for pieces that do not match.
struct Waiter<U> {
    fiber: FiberId,
    state: Cell<Wait>,
    end: UnsafeCell<End<U>>,
}

/// What a wait ended with; which of them it is, the waiter's state says.
union End<U> {
    pending: (),
    value: ManuallyDrop<U>,
    error: ManuallyDrop<Box<DelegateError>>,
}

impl<U> Waiter<U> {
    #[inline(always)]
    fn new(fiber: FiberId) -> Self {
        let end = UnsafeCell::new(End { pending: () });
        Waiter { fiber, state: Cell::new(Wait::Pending), end }
    }

    /// Parks the fiber until the wait has ended. Called once.
    #[inline(always)]
    fn wait(&self) -> Result<U, DelegateError> {
        loop {
            match self.state.get() {
                Wait::Pending => fiber::park(),
                Wait::Done => {
                    // SAFETY: the state says that the completion has written the value. It is taken
                    // once: `wait` is called once, and returns.
                    return Ok(unsafe { ManuallyDrop::take(&mut (*self.end.get()).value) });
                }
                Wait::Failed => {
                    // SAFETY: as above, of the error.
                    return Err(*unsafe { ManuallyDrop::take(&mut (*self.end.get()).error) });
                }
            }
        }
    }
}

impl<U> Drop for Waiter<U> {
    fn drop(&mut self) {
        if self.state.get() == Wait::Pending {
            // The completion holds a pointer to this frame. Nodes are closed, which ends all
            // requests, before fibers are unwound; going on would corrupt memory.
            eprintln!("gossamer: a fiber was unwound while its request is under way; aborting");
            std::process::abort();
        }
    }
}

/// Wakes the fiber that waits for a result.
pub(crate) struct Wake<U>(*const Waiter<U>);

impl<U: Portable> Completion for Wake<U> {
    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.at_hand() {
            Some(value) => ManuallyDrop::new(self).end(Ok(value)),
            None => self.end_with(outcome),
        }
    }
}

impl<U: Portable> Wake<U> {
    #[inline(never)]
    fn end_with(self, outcome: Outcome<'_>) {
        self.end(outcome.result());
        std::mem::forget(self);
    }
}

impl<U> Wake<U> {
    /// Ends the wait. Called once.
    #[inline(always)]
    fn end(&self, result: Result<U, DelegateError>) {
        // SAFETY: the waiter is on the stack of a fiber that does not leave its frame before the
        // state says that the wait has ended, which only happens here, once; the fiber is of this
        // thread and is not looking at the waiter now, so nothing else refers to it.
        let waiter = unsafe { &*self.0 };
        match result {
            Ok(value) => {
                // SAFETY: as above; the value is not read before the state is set.
                unsafe { (*waiter.end.get()).value = ManuallyDrop::new(value) };
                waiter.state.set(Wait::Done);
            }
            Err(error) => {
                // SAFETY: as for the value.
                unsafe { (*waiter.end.get()).error = ManuallyDrop::new(Box::new(error)) };
                waiter.state.set(Wait::Failed);
            }
        }
        fiber::unpark(waiter.fiber);
    }
}

/// Only a panic drops it: of an argument that is encoded, or of a result that is decoded.
impl<U> Drop for Wake<U> {
    fn drop(&mut self) {
        let source = CodecError("its own code for that panicked".to_owned());
        self.end(Err(DelegateError::Codec { what: "encode or decode a value", source }));
    }
}

/// What is told of the result of a call that does not wait.
pub(crate) trait Told<U>: Sized + 'static {
    fn done(self, value: U);
    fn failed(self, node: &Node, error: DelegateError);

    #[inline(always)]
    fn tell(self, node: &Node, result: Result<U, DelegateError>) {
        match result {
            Ok(value) => self.done(value),
            Err(error) => self.failed(node, error),
        }
    }
}

/// A callback for the result alone.
pub(crate) struct Then<C, U>(pub(crate) C, pub(crate) PhantomData<fn(U)>);

impl<U: 'static, C: FnOnce(U) + 'static> Told<U> for Then<C, U> {
    #[inline(always)]
    fn done(self, value: U) {
        (self.0)(value);
    }

    fn failed(self, node: &Node, error: DelegateError) {
        node.report(error);
    }
}

/// A callback for the result or the failure.
struct Either<C, U>(C, PhantomData<fn(U)>);

impl<U: 'static, C: FnOnce(Result<U, DelegateError>) + 'static> Told<U> for Either<C, U> {
    #[inline(always)]
    fn done(self, value: U) {
        (self.0)(Ok(value));
    }

    fn failed(self, _: &Node, error: DelegateError) {
        (self.0)(Err(error));
    }
}

/// Tells a callback when the reply comes.
pub(crate) struct Tell<C, U>(pub(crate) C, pub(crate) PhantomData<fn(U)>);

impl<U: Portable, C: Told<U>> Completion for Tell<C, U> {
    const WAITS_FOR_ROOM: bool = true;

    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.at_hand() {
            Some(value) => self.0.done(value),
            None => self.complete_with(outcome),
        }
    }

    fn name() -> &'static str {
        type_name::<C>()
    }
}

impl<U: Portable, C: Told<U>> Tell<C, U> {
    #[inline(never)]
    fn complete_with(self, outcome: Outcome<'_>) {
        let result = outcome.result();
        with_node(|node| {
            if let Some(node) = node {
                self.0.tell(node, result);
            }
        });
    }
}

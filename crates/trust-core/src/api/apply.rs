//! `apply` and its relatives: sending closures to properties (thesis 2.4).

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::Trust;
use crate::api::callback::{Callback, Either, Tell, Then};
use crate::client::completion::Completion;
use crate::client::completion_list::kind_of;
use crate::client::outbox::Outbox;
use crate::closure::call::Apply;
use crate::closure::context::Context;
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::closure::registry::{Delegated, Tag};
use crate::codec::{self, Portable};
use crate::error::{CallResult, Chain, DelegateError, Panic, PanicReport};
use crate::node::racks::outside_of;
use crate::node::request::{Target, plain_in_run};
use crate::node::{CallSite, Node, current, on_node, recent};

impl<T: 'static> Trust<T> {
    /// Runs `closure` on the property and returns its result, waiting for it: the current fiber
    /// is suspended, and others run meanwhile. On the trustee's own thread the closure runs at
    /// once; now and then (after some 50 microseconds of such calls) others run before it, so that
    /// a loop of them does not keep the thread. (Thesis 2.4.1.)
    ///
    /// The closure captures nothing; use [`apply_with`](Self::apply_with) or
    /// [`delegate!`](crate::delegate) to pass values.
    ///
    /// # Panics
    /// If the closure panics, with its message; if the trustee's host is gone; outside a fiber of
    /// the rack; and in delegated context, where waiting is not allowed (thesis 2.3.4).
    /// [`try_apply`](Self::try_apply) returns the first two as errors.
    #[doc(alias = "lock", alias = "fetch_add")]
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply<F, U>(&self, closure: F) -> U
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.call::<_, _, false>(Plain(closure), ()))
    }

    /// As [`apply`](Self::apply), with `arguments` for the closure, which travel with it.
    /// (Thesis 2.4.3.2.)
    ///
    /// # Panics
    /// As [`apply`](Self::apply), and if the arguments cannot be encoded.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_with<F, V, U>(&self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.call::<_, _, false>(With(closure), arguments))
    }

    /// As [`apply`](Self::apply), but failures come back as errors.
    ///
    /// # Errors
    /// [`DelegateError`], when the closure panicked (on whatever thread it ran, this one included),
    /// when the trustee's host is gone, when a value cannot be encoded or decoded, and outside a fiber
    /// of the rack.
    ///
    /// # Panics
    /// In delegated context. If the arguments' own code panics while they are encoded, that panic
    /// propagates.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply<F, U>(&self, closure: F) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.call::<_, _, true>(Plain(closure), ()).map_err(|error| *error)
    }

    /// As [`apply_with`](Self::apply_with), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_apply`](Self::try_apply).
    ///
    /// # Panics
    /// As [`try_apply`](Self::try_apply).
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn try_apply_with<F, V, U>(&self, closure: F, arguments: V) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.call::<_, _, true>(With(closure), arguments).map_err(|error| *error)
    }

    /// Runs `closure` on the property without waiting; when its result is here, `then` is called
    /// with it, on this thread. Allowed everywhere, also in delegated context. (Thesis 2.4.2.)
    ///
    /// Requests of one thread to one trustee are served in the order they were sent. A fiber waits
    /// here only when there is no room for more requests, and gives way now and then when it calls
    /// properties of its own thread, as in [`apply`](Self::apply). If the request fails, `then` is
    /// not called, and the rack ends with an error that names the line of this call; use
    /// [`try_apply_then`](Self::try_apply_then) to handle failures.
    ///
    /// # Panics
    /// Outside a thread of the rack. If the closure runs at once, because the property is this
    /// thread's own, a panic of the closure or of `then` propagates to the caller.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(Plain(closure), (), Then::new(then, Location::caller()));
    }

    /// As [`apply_then`](Self::apply_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`apply_then`](Self::apply_then), and if the arguments' own code panics while they are
    /// encoded.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn apply_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        self.cast(With(closure), arguments, Then::new(then, Location::caller()));
    }

    /// As [`apply_then`](Self::apply_then), but `then` also gets failures.
    ///
    /// `then` is called exactly once, on this thread, with the result or with the error:
    /// the closure panicked, on any thread, this one included; a value cannot
    /// be encoded or decoded, or its own code for that panicked; the property or the trustee's host
    /// is gone; the rack ended first. In the last case it is called while the rack ends, where new
    /// requests fail too.
    ///
    /// # Panics
    /// Outside a thread of the rack; `then` is not called.
    #[cfg_attr(optimised, inline(always))]
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

    /// As [`try_apply_then`](Self::try_apply_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`try_apply_then`](Self::try_apply_then).
    #[cfg_attr(optimised, inline(always))]
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
    #[cfg_attr(optimised, inline(always))]
    pub fn is_local(&self) -> bool {
        on_node(|node| self.is_at(node)).unwrap_or(false)
    }

    /// For layers above: whether the current thread may send requests to the property; elsewhere they
    /// panic. It may not outside its rack.
    #[doc(hidden)]
    pub fn is_in_reach(&self) -> bool {
        on_node(|node| self.is_used_by(node) || self.is_at(node)).unwrap_or(false)
    }

    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn is_at(&self, node: &Node) -> bool {
        node.id == self.home
    }

    /// A call that waits. If it `CATCHES`, a panic of the closure on this thread is an error, as it is
    /// on any other.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub(super) fn call<I, V, const CATCHES: bool>(
        &self,
        invoke: I,
        arguments: V,
    ) -> CallResult<I::Output>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let place = Location::caller();
        match current(self) {
            Some(node) if self.is_at(node) => {
                // First, since another fiber may enter a closure meanwhile: `Own::run` needs the
                // context to be free.
                node.count_inline_call();
                node.context().check_may_wait("`apply`", place);
                let result = if const { CATCHES } {
                    self.own().run_caught(node, invoke, arguments, place)
                } else {
                    self.own().run(node, invoke, arguments, place)
                };
                node.run_deferred();
                result
            }
            Some(node) => {
                let Some(outbox) = node.outbox_at(self.home) else {
                    return Err(outside_of(self.home));
                };
                node.context().check_may_wait("`apply`", place);
                node.call(self.target_by(outbox), invoke, arguments, place)
            }
            None => Err(outside_of(self.home)),
        }
    }

    /// The property, for its trustee's own thread.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn own(&self) -> Own<T> {
        Own { property: self.property, tag: self.tag, _property: PhantomData }
    }

    /// A call that does not wait.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub(super) fn cast<I, V, C>(&self, invoke: I, arguments: V, then: C)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Callback<I::Output>,
    {
        let Some(plain) = plain_in_run::<Apply<T, V, I>, I, V>(&arguments) else {
            return self.cast_first(invoke, arguments, then);
        };
        let name = self.user();
        match recent(self).filter(|outbox| outbox.was_last(name)) {
            Some(outbox) => {
                // A closure without bytes is made anew at the trustee, so this one is gone.
                std::mem::forget(invoke);
                let then = Tell(then, PhantomData);
                self.cast_again::<Apply<T, V, I>, _>(outbox, name, plain, then);
            }
            None => self.cast_after_other(invoke, arguments, then),
        }
    }

    /// As [`cast`](Self::cast), if the last request was of another property. Out of line: its caller already
    /// inlines `cast_first`.
    #[inline(never)]
    #[track_caller]
    fn cast_after_other<I, V, C>(&self, invoke: I, arguments: V, then: C)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Callback<I::Output>,
    {
        self.cast_first(invoke, arguments, then);
    }

    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    fn cast_first<I, V, C>(&self, invoke: I, arguments: V, then: C)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Callback<I::Output>,
    {
        let Some(node) = current(self) else { raise(&outside_of(self.home)) };
        match self.outbox_of(node) {
            Some(outbox) => {
                node.note_recent(outbox);
                let then = Tell(then, PhantomData);
                node.request(self.target_by(outbox), invoke, &arguments, then);
            }
            None if self.is_at(node) => {
                self.cast_inline(node, invoke, arguments, then, Location::caller());
            }
            None => raise(&outside_of(self.home)),
        }
    }

    /// A call that does not wait, of this property, whose name at the outbox is that of the last request
    /// there.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    fn cast_again<D: Delegated, C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        name: u64,
        plain: codec::Plain,
        then: C,
    ) {
        if let Err(then) = outbox.append_plain::<D, C>(name, plain, then) {
            let Some(node) = current(self) else { raise(&outside_of(self.home)) };
            node.send_one_in_next::<D, C>(outbox, name, plain, then);
        }
    }

    /// A call that does not wait, of a property of this thread: it runs now, or when the delegated
    /// code that runs now has ended. Not part of its caller, whose registers are for requests.
    #[inline(never)]
    fn cast_inline<I, V, C>(&self, node: &Node, invoke: I, arguments: V, then: C, place: CallSite)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Callback<I::Output>,
    {
        // First, since another fiber may enter a closure meanwhile.
        node.count_inline_call();
        if node.context().is_free() {
            let result = self.own().run_for::<I, V, C>(node, invoke, arguments, place);
            let context = node.context().enter(Context::Callback);
            node.context().set_callback(&kind_of::<Tell<C, I::Output>>().name);
            then.tell(result.map_err(|error| *error));
            drop(context);
            node.run_deferred();
        } else {
            // The property stays until then: no drop of a trust overtakes what is deferred.
            let property = self.own();
            node.defer(move |node| {
                // A panic has no caller to go to any more: it is the failure of a request.
                let result = property.run_caught(node, invoke, arguments, place);
                let _context = node.context().enter(Context::Callback);
                node.context().set_callback(&kind_of::<Tell<C, I::Output>>().name);
                then.tell(result.map_err(|error| *error));
            });
        }
    }

    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn target(&self) -> Target<'static, T> {
        let home = self.home.number();
        Target { home, property: self.property, outbox: None, _property: PhantomData }
    }

    /// As [`target`](Self::target), whose requests go by `outbox`.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn target_by<'a>(&self, outbox: &'a Outbox) -> Target<'a, T> {
        Target { outbox: Some(outbox), ..self.target() }
    }
}

/// A property of this thread: its number, and the tag of its type. Unlike a trust it does not keep
/// the property.
pub(crate) struct Own<T> {
    property: u32,
    tag: Tag,
    _property: PhantomData<fn(T)>,
}

impl<T: 'static> Own<T> {
    /// Runs a closure on a property of this thread. The caller has found the context free, and no
    /// other fiber has run since: in another context, a closure may hold the property already.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn run<I, V>(
        self,
        node: &Node,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        I: Invoke<T, V>,
    {
        let Some(property) = node.properties().find(self.property, self.tag) else {
            return Err(no_such_property(node, self.property, (invoke, arguments), place));
        };
        let _context = node.context().enter_from_free(Context::Inline(place));
        // SAFETY: the property is live and a `T` (its tag is the trust's, which is `T`'s). Nothing
        // else refers to it: only this thread has access, and it was in free context until the
        // guard above, since no fiber switch lies between the caller's check and that guard (`find`
        // runs no code of users). Whatever runs inside the guard, other fibers included, finds a
        // context that is not free.
        let property = unsafe { property.cast::<T>().as_mut() };
        Ok(invoke.invoke(property, arguments))
    }

    /// Runs a closure on a property of this thread for a callback: if that gets failures, a
    /// panic of the closure is one of them, as it is when another thread runs it.
    #[cfg_attr(optimised, inline(always))]
    fn run_for<I, V, C>(
        self,
        node: &Node,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        I: Invoke<T, V>,
        C: Callback<I::Output>,
    {
        if const { C::HEARS_FAILURES } {
            self.run_caught(node, invoke, arguments, place)
        } else {
            self.run(node, invoke, arguments, place)
        }
    }

    /// As [`run`](Self::run); a panic of the closure is an error.
    #[inline]
    pub(crate) fn run_caught<I, V>(
        self,
        node: &Node,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        I: Invoke<T, V>,
    {
        let run = || self.run(node, invoke, arguments, place);
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Err(panicked(node, panic, place)))
    }
}

/// The error of a closure that was delegated at `place` to this thread and has panicked.
#[cold]
#[inline(never)]
pub(crate) fn panicked(node: &Node, panic: Panic, place: CallSite) -> Box<DelegateError> {
    // The destructor of the panic's payload is the closure's code.
    let _context = node.context().enter(Context::Inline(place));
    let report = PanicReport::taken(panic);
    Box::new(DelegateError::Panicked { trustee: node.me, report })
}

/// The error of a closure that cannot run. Its arguments are dropped in the context that they would
/// have been dropped in, since the caller goes on using the node.
#[cold]
fn no_such_property<A>(node: &Node, number: u32, unused: A, place: CallSite) -> Box<DelegateError> {
    let context = node.context().enter(Context::Inline(place));
    drop(unused);
    drop(context);
    let reason = format!("there is no property {number} of the trust's type here");
    Box::new(DelegateError::Refused { trustee: node.me, reason })
}

/// The result of a request; its failure ends the caller. Called by functions that are themselves
/// marked `track_caller`, and never inside a closure, which forgets the mark: so the panic is one
/// of the line that delegated.
#[cfg_attr(optimised, inline(always))]
#[track_caller]
pub(crate) fn or_raise<U>(result: CallResult<U>) -> U {
    match result {
        Ok(value) => value,
        Err(error) => raise(&error),
    }
}

/// Ends the caller with the failure of its request, and says where that was delegated: the place
/// of the panic itself is lost when the fiber's joiner gets the message.
#[cold]
#[inline(never)]
#[track_caller]
pub(super) fn raise(error: &DelegateError) -> ! {
    if let DelegateError::NoRack(_) = error
        && on_node(Node::is_closed) == Some(true)
    {
        if std::thread::panicking() {
            // A destructor that panics ends the process, so the message must come first.
            panic!(
                "{} (delegated at {}, in a destructor: use `try_apply` there)",
                Chain(error),
                Location::caller()
            );
        }
        // The rack has ended under a fiber that was still waiting: nothing went wrong here.
        std::panic::resume_unwind(Box::new(error.to_string()));
    }
    panic!("{} (delegated at {})", Chain(error), Location::caller())
}

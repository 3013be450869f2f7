//! Where the calls of a trust go: into the batch for the property's thread, or at once to a property of
//! this one.

use std::marker::PhantomData;
use std::panic::Location;

use crate::Trust;
use crate::api::apply::raise;
use crate::api::callback::{Callback, Tell};
use crate::client::completion::Completion;
use crate::client::completion_list::kind_of;
use crate::client::outbox::Outbox;
use crate::closure::call::Apply;
use crate::closure::context::Context;
use crate::closure::invoke::Invoke;
use crate::closure::registry::Delegated;
use crate::codec::{self, Portable};
use crate::error::CallResult;
use crate::node::kind::Kind;
use crate::node::racks::outside_of;
use crate::node::request::{Target, plain_in_run};
use crate::node::{CallSite, Node, current, recent};

impl<T: 'static> Trust<T> {
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
        let Some(node) = current(self) else { return Err(outside_of(self.home)) };
        let Some(outbox) = self.begin_call(node, "`apply`", place)? else {
            let result = if const { CATCHES } {
                self.own().run_caught(node, invoke, arguments, place)
            } else {
                self.own().run(node, invoke, arguments, place)
            };
            node.run_deferred();
            return result;
        };
        node.call(self.target_by(outbox), invoke, arguments, place)
    }

    /// Begins a call that waits: returns the outbox to send by, or `None` if the property is `node`'s own.
    /// Then the call has been counted, and its caller runs the closure at once.
    ///
    /// # Panics
    /// If `what`, called at `place`, may not wait there.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub(super) fn begin_call<'a>(
        &self,
        node: &'a Node,
        what: &str,
        place: CallSite,
    ) -> CallResult<Option<&'a Outbox>> {
        if self.is_at(node) {
            // First, since another fiber may enter a closure meanwhile: `Own::run` needs the context to be
            // free.
            node.count_inline_call();
            node.context().check_may_wait(what, place);
            return Ok(None);
        }
        let Some(outbox) = node.outbox_at(self.home) else {
            return Err(outside_of(self.home));
        };
        node.context().check_may_wait(what, place);
        Ok(Some(outbox))
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
        const { assert!(Tell::<C, I::Output>::IN_RUNS || !Apply::<T, V, I>::MAY_HAVE_RUNS) };
        if const { Apply::<T, V, I>::MAY_HAVE_RUNS }
            && let Some(plain) = plain_in_run::<Apply<T, V, I>, V>(&arguments)
        {
            let name = self.cached_name();
            return match recent(self).filter(|outbox| outbox.was_last(name)) {
                Some(outbox) => {
                    // A closure without bytes is made anew at the trustee, so this one is gone.
                    std::mem::forget(invoke);
                    let then = Tell(then, PhantomData);
                    self.cast_again::<Apply<T, V, I>, _>(outbox, name, plain, then);
                }
                None => self.cast_after_other(invoke, arguments, then),
            };
        }
        self.cast_first(invoke, arguments, then);
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
            let result = if const { C::HEARS_FAILURES } {
                self.own().run_caught(node, invoke, arguments, place)
            } else {
                self.own().run(node, invoke, arguments, place)
            };
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

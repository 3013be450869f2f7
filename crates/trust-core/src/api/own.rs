//! [`Own`]: a property of the thread that calls it. Its closures run at once, where the call is made.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::Trust;
use crate::closure::context::{Context, EnteredFromFree};
use crate::closure::invoke::Invoke;
use crate::closure::registry::Tag;
use crate::error::{CallResult, DelegateError, Panic, PanicReport};
use crate::node::{CallSite, Node};

/// A property of this thread: its number, and the tag of its type. Unlike a trust it does not keep
/// the property.
pub(crate) struct Own<T> {
    property: u32,
    tag: Tag,
    _property: PhantomData<fn(T)>,
}

/// While it lives, a closure runs on this property.
struct Inside<'a> {
    property: NonNull<u8>,
    _context: EnteredFromFree<'a>,
}

impl<T: 'static> Trust<T> {
    /// The property, for its trustee's own thread.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn own(&self) -> Own<T> {
        Own { property: self.property, tag: self.tag, _property: PhantomData }
    }
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
        let Some(inside) = self.enter(node, place) else {
            // They are dropped in the context that they would have been dropped in, since the caller goes
            // on using the node.
            let context = node.context().enter(Context::Inline(place));
            drop((invoke, arguments));
            drop(context);
            return Err(no_such_property(node, self.property));
        };
        // SAFETY: the property is live and a `T` (its tag is the trust's, which is `T`'s). Nothing
        // else refers to it: only this thread has access, and it was in free context until `enter`
        // changed that, since no fiber switch lies between the caller's check and that (`find`
        // runs no code of users). Whatever runs inside, other fibers included, finds a context that
        // is not free.
        let property = unsafe { inside.property.cast::<T>().as_mut() };
        Ok(invoke.invoke(property, arguments))
    }

    /// Enters the context of a closure that was delegated at `place`, if there is such a property.
    #[cfg_attr(optimised, inline(always))]
    fn enter<'a>(&self, node: &'a Node, place: CallSite) -> Option<Inside<'a>> {
        let property = node.properties().find(self.property, self.tag)?;
        Some(Inside { property, _context: node.context().enter_from_free(Context::Inline(place)) })
    }

    /// As [`run`](Self::run); a panic of the closure is an error, as it is when another thread runs it.
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

/// The error of a closure that cannot run.
#[cold]
#[inline(never)]
fn no_such_property(node: &Node, number: u32) -> Box<DelegateError> {
    let reason = format!("there is no property {number} of the trust's type here");
    Box::new(DelegateError::Refused { trustee: node.me, reason })
}

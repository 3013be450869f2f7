//! [`Trustee`]: a thread of the rack, to entrust values to, to run closures on and to start fibers on
//! (thesis 2.3.2). Its operations are in `entrust.rs`, `visit.rs` and `spawn.rs`.
//!
//! All of it is calls of the thread's [`Runtime`], which this file makes.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use transport_api::ThreadId;

use crate::Trust;
use crate::api::apply::or_raise;
use crate::api::callback::{Callback, Tell};
use crate::api::own::panicked;
use crate::client::completion_list::kind_of;
use crate::closure::context::{CallbackName, Context};
use crate::closure::invoke::Invoke;
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, outside};
use crate::node::racks::outside_of;
use crate::node::request::Target;
use crate::node::system::Runtime;
use crate::node::{CallSite, Node, NodeId, current, on_node, with_node};

/// A thread of the rack, to entrust values to, to run closures on and to start fibers on.
///
/// ```text
/// trustee.entrust(value)          a property there, of a value that travels
/// trustee.entrust_with(make, a)   a property there, of a value that is made there
/// trustee.visit(|| ..)            runs a closure there, on no property
/// trustee.spawn(|| ..)            starts a fiber there
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Trustee {
    id: NodeId,
}

/// The thread as messages name it, `thread 1 of host 0`; with its number alone outside its rack.
impl fmt::Display for Trustee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match on_node(|node| self.thread_in(node)).flatten() {
            Some(thread) => write!(f, "{thread}"),
            None => write!(f, "thread number {}", self.number()),
        }
    }
}

impl fmt::Debug for Trustee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trustee({self})")
    }
}

/// It travels as its number, which is the same on all hosts of the rack.
impl Serialize for Trustee {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.number().serialize(serializer)
    }
}

/// It is one of the rack that the current thread belongs to; elsewhere all that is done with it fails.
impl<'de> Deserialize<'de> for Trustee {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        let rack = on_node(|node| node.id.rack()).unwrap_or(NodeId::NONE.rack());
        Ok(Trustee { id: NodeId::new(rack, number) })
    }
}

/// The trustee of the current thread.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn local_trustee() -> LocalTrustee {
    let id = or_raise(on_node(|node| node.id).ok_or_else(outside));
    LocalTrustee(Trustee { id }, PhantomData)
}

/// The trustee of the current thread: values need not travel to get there, so it takes any.
#[derive(Clone, Copy, Debug)]
pub struct LocalTrustee(Trustee, PhantomData<*const ()>);

impl LocalTrustee {
    /// Entrusts `value` to the current thread.
    pub fn entrust<T: 'static>(&self, value: T) -> Trust<T> {
        on_node(|node| Trust::entrust_at(node, value))
            .expect("a local trustee does not leave its thread")
    }

    /// The same trustee, as a value that other threads can use.
    #[must_use]
    pub fn trustee(&self) -> Trustee {
        self.0
    }
}

impl From<LocalTrustee> for Trustee {
    fn from(local: LocalTrustee) -> Trustee {
        local.0
    }
}

impl Trustee {
    /// The trustee of this number, from 0 and counted through all hosts of the rack; `None` if the
    /// rack has fewer.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[must_use]
    #[track_caller]
    pub fn from_number(number: u32) -> Option<Trustee> {
        let found = on_node(|node| node.thread_numbered(number).map(|_| Self::at(node, number)));
        or_raise(found.ok_or_else(outside))
    }

    /// The trustee of this thread; `None` if the rack has no such thread.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[must_use]
    #[track_caller]
    pub fn from_thread(thread: ThreadId) -> Option<Trustee> {
        let of = |node: &Node| node.has(thread).then(|| Self::at(node, node.number_of(thread)));
        or_raise(on_node(of).ok_or_else(outside))
    }

    /// The thread with this number of `node`'s rack.
    fn at(node: &Node, number: u32) -> Trustee {
        Trustee { id: NodeId::new(node.id.rack(), number) }
    }

    pub(crate) fn with_id(id: NodeId) -> Trustee {
        Trustee { id }
    }

    /// The thread's number, counted through all hosts of the rack.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.id.number()
    }

    /// The number of its rack in this process.
    pub(super) fn rack(&self) -> u32 {
        self.id.rack()
    }

    /// Which thread of which host it is.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[must_use]
    #[track_caller]
    pub fn thread(&self) -> ThreadId {
        or_raise(self.thread_or_outside())
    }

    /// Whether it is the current thread.
    pub(super) fn is_here(&self) -> bool {
        on_node(|node| node.id) == Some(self.id)
    }

    pub(super) fn thread_or_outside(&self) -> CallResult<ThreadId> {
        on_node(|node| self.thread_in(node)).flatten().ok_or_else(|| self.outside())
    }

    /// Which thread of `node`'s rack it is; `None` if it is one of another rack.
    pub(super) fn thread_in(&self, node: &Node) -> Option<ThreadId> {
        let is_there = self.rack() == node.id.rack();
        node.thread_numbered(self.number()).filter(|_| is_there)
    }

    /// The error of a call from a thread that is not one of its rack.
    pub(super) fn outside(&self) -> Box<DelegateError> {
        outside_of(self.id)
    }

    pub(super) fn runtime(&self) -> Target<'static, Runtime> {
        Target::of_runtime(self.number())
    }

    /// Calls the runtime of the thread and waits for it, on behalf of the method `what`, called at
    /// `place`. It may wait for its own thread as well, and then runs at once.
    #[track_caller]
    pub(super) fn call<I, V>(
        &self,
        what: &str,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        I: Invoke<Runtime, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let node = current(self).filter(|node| self.rack() == node.id.rack());
        let node = node.ok_or_else(|| self.outside())?;
        if self.id == node.id {
            begin_inline(node);
            let _stay = node.stay();
            return Ok(invoke.invoke(&mut Runtime, arguments));
        }
        node.context().check_may_wait(what, place);
        node.call(self.runtime(), invoke, arguments, place)
    }

    /// As [`call`](Self::call), on behalf of a method whose failures are errors.
    #[track_caller]
    pub(super) fn try_call<I, V>(
        &self,
        what: &str,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        I: Invoke<Runtime, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let Some(node) = current(self).filter(|node| node.id == self.id) else {
            return self.call(what, invoke, arguments, place);
        };
        begin_inline(node);
        let _stay = node.stay();
        let run = AssertUnwindSafe(|| invoke.invoke(&mut Runtime, arguments));
        catch_unwind(run).map_err(|panic| panicked(node, panic, place))
    }

    /// Calls the runtime of the thread, without waiting; `then` gets the result.
    pub(super) fn cast<I, V, C>(
        &self,
        invoke: I,
        arguments: V,
        then: C,
        place: CallSite,
    ) -> CallResult<()>
    where
        I: Invoke<Runtime, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Callback<I::Output>,
    {
        with_node(|node| {
            let node = node.filter(|node| self.rack() == node.id.rack());
            let node = node.ok_or_else(|| self.outside())?;
            if self.id != node.id {
                node.request(self.runtime(), invoke, &arguments, Tell(then, PhantomData));
                return Ok(());
            }
            begin_inline(node);
            let is_now = node.context().is_free();
            node.run_or_defer(move |node| {
                let run = || {
                    let _context = node.context().enter(Context::Inline(place));
                    invoke.invoke(&mut Runtime, arguments)
                };
                let result = if C::HEARS_FAILURES || !is_now {
                    catch_unwind(AssertUnwindSafe(run))
                        .map_err(|panic| *panicked(node, panic, place))
                } else {
                    Ok(run())
                };
                let _context = node.context().enter(Context::Callback);
                node.context().set_callback(name_of_callback::<C, I::Output>());
                then.tell(result);
            });
            Ok(())
        })
    }
}

/// Begins a call of the runtime of the current thread. The fiber may give way here, and be cancelled
/// meanwhile: that is no panic of the call, so this is outside of what catches those.
fn begin_inline(node: &Node) {
    if node.context().is_free() {
        node.count_inline_call();
    }
}

/// The name of a callback in messages.
fn name_of_callback<C: Callback<U>, U: Portable>() -> &'static CallbackName {
    &kind_of::<Tell<C, U>>().name
}

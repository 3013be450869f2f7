//! [`Trustee`]: a thread of the rack, to entrust values to and to start fibers on (thesis 2.3.2).

use std::marker::PhantomData;
use std::panic::Location;

use fiber::{JoinError, JoinHandle, Promise};
use serde::{Deserialize, Serialize};
use transport_api::ThreadId;

use crate::Trust;
use crate::api::apply::or_raise;
use crate::api::remote_fiber::{Begun, Started, begin};
use crate::client::completion::{Completion, boxed};
use crate::client::outcome::Outcome;
use crate::closure::invoke::{Delegable, Invoke, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, RACK_ENDED, outside};
use crate::node::awaited::ReplyTo;
use crate::node::request::Target;
use crate::node::system::{RUNTIME, Runtime};
use crate::node::{Node, on_node, with_node};

/// A thread of the rack, to entrust values to and to start fibers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Trustee {
    number: u32,
}

/// The trustee of the current thread.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn local_trustee() -> LocalTrustee {
    let number = or_raise(on_node(Node::number).ok_or_else(outside));
    LocalTrustee(Trustee { number }, PhantomData)
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
    pub fn trustee(&self) -> Trustee {
        self.0
    }
}

impl From<LocalTrustee> for Trustee {
    fn from(local: LocalTrustee) -> Trustee {
        local.0
    }
}

/// Entrusts a value that came with the request.
#[derive(Clone, Copy)]
struct Entrust<F>(F);

impl<A, T: 'static, F: FnOnce(A) -> T> Invoke<Runtime, A> for Entrust<F> {
    type Output = Trust<T>;
    fn invoke(self, _: &mut Runtime, arguments: A) -> Trust<T> {
        let value = (self.0)(arguments);
        on_node(|node| Trust::entrust_at(node, value)).expect("requests are served by nodes")
    }
    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

/// Runs a closure on the thread itself.
#[derive(Clone, Copy)]
struct Visit<F>(F);

impl<A, U, F: FnOnce(&Node, A) -> U> Invoke<Runtime, A> for Visit<F> {
    type Output = U;
    fn invoke(self, _: &mut Runtime, arguments: A) -> U {
        on_node(|node| (self.0)(node, arguments)).expect("requests are served by nodes")
    }
    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

/// Starts a fiber for a closure.
#[derive(Clone, Copy)]
struct Start<F>(F);

impl<A, U, F> Invoke<Runtime, (ReplyTo, A)> for Start<F>
where
    A: 'static,
    U: Portable,
    F: FnOnce(A) -> U + 'static,
{
    type Output = Begun;
    fn invoke(self, _: &mut Runtime, (reply_to, arguments): (ReplyTo, A)) -> Begun {
        begin(reply_to, move || Ok((self.0)(arguments)))
    }
    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

impl Trustee {
    /// The trustee of a thread of the rack, by its number, counted through all hosts; `None` if
    /// the rack has no such thread.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    pub fn from_number(number: u32) -> Option<Trustee> {
        let exists = on_node(|node| node.thread_numbered(number).is_some());
        or_raise(exists.ok_or_else(outside)).then_some(Trustee { number })
    }

    /// The trustee of this thread; `None` if the rack has no such thread.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    pub fn from_thread(thread: ThreadId) -> Option<Trustee> {
        let number = on_node(|node| node.has(thread).then(|| node.number_of(thread)));
        or_raise(number.ok_or_else(outside)).map(Self::with_number)
    }

    pub(crate) fn with_number(number: u32) -> Trustee {
        Trustee { number }
    }

    /// The thread's number, counted through all hosts of the rack.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Which thread of which host it is.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    pub fn thread(&self) -> ThreadId {
        let thread = on_node(|node| node.thread_numbered(self.number)).flatten();
        or_raise(thread.ok_or_else(outside))
    }

    /// Sends `value` to the trustee and entrusts it there. The value crosses the rack encoded; to
    /// build it there instead, use [`entrust_with`](Self::entrust_with).
    ///
    /// # Panics
    /// As [`Trust::apply_with`].
    #[track_caller]
    pub fn entrust<T: Portable>(&self, value: T) -> Trust<T> {
        or_raise(self.call("`entrust`", Entrust(|value: T| value), value))
    }

    /// Has the trustee make a value from `arguments`, and entrusts it there. The value itself
    /// never travels.
    ///
    /// # Panics
    /// As [`Trust::apply_with`].
    #[track_caller]
    pub fn entrust_with<A, T, F>(&self, make: F, arguments: A) -> Trust<T>
    where
        A: Portable,
        T: 'static,
        F: FnOnce(A) -> T + Delegable,
    {
        const { check_captures::<F>() };
        or_raise(self.call("`entrust_with`", Entrust(make), arguments))
    }

    /// Moves `value` to a thread of this process and entrusts it there, without encoding it. This
    /// does not wait for the thread, so it also works in delegated closures and in initialisers.
    ///
    /// # Panics
    /// If the trustee is on another host; outside a thread of a rack; if the rack has ended.
    #[track_caller]
    pub fn entrust_moved<T: Send + 'static>(&self, value: T) -> Trust<T> {
        let thread = self.thread();
        let host = on_node(|node| node.me.host);
        assert!(
            host == Some(thread.host),
            "a value can only be moved to a thread of the same process; use `entrust_with`"
        );
        or_raise(with_node(|node| match node {
            None => Err(outside()),
            Some(node) if node.is_closed() => Err(Box::new(RACK_ENDED)),
            Some(node) if node.me == thread => Ok(Trust::entrust_at(node, value)),
            Some(node) => Ok(Trust::entrust_beside(node, thread, value)),
        }))
    }

    /// Starts a fiber at this thread, wherever in the rack it is, with `arguments` for its closure.
    /// The closure itself captures nothing.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    pub fn spawn_with<A, U, F>(&self, closure: F, arguments: A) -> JoinHandle<U>
    where
        A: Portable,
        U: Portable + Send,
        F: FnOnce(A) -> U + Delegable,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(with_node(|node| {
            let node = node.ok_or_else(outside)?;
            let thread = node.thread_numbered(self.number).ok_or_else(outside)?;
            let (promise, handle) = Promise::new();
            let reply_to = node.await_reply(thread, place, boxed(Settle(promise)));
            let started = Started::new(reply_to, thread);
            if self.number == node.number() {
                started.end(Ok(Start(closure).invoke(&mut Runtime, (reply_to, arguments))));
            } else {
                let arguments = (reply_to, arguments);
                node.request(self.runtime(), Start(closure), &arguments, started);
            }
            Ok(handle)
        }))
    }

    /// Runs `closure` on the trustee's thread, on no property, and waits for its result.
    ///
    /// # Panics
    /// As [`Trust::apply_with`].
    #[track_caller]
    pub fn visit_node<A, U, F>(&self, closure: F, arguments: A) -> U
    where
        A: Portable,
        U: Portable,
        F: FnOnce(&Node, A) -> U + Delegable,
    {
        const { check_captures::<F>() };
        or_raise(self.call("`visit_node`", Visit(closure), arguments))
    }

    /// As [`visit_node`](Self::visit_node), but failures come back as errors.
    ///
    /// # Errors
    /// As [`Trust::try_apply`].
    ///
    /// # Panics
    /// As [`Trust::try_apply`].
    #[track_caller]
    pub fn try_visit_node<A, U, F>(&self, closure: F, arguments: A) -> Result<U, DelegateError>
    where
        A: Portable,
        U: Portable,
        F: FnOnce(&Node, A) -> U + Delegable,
    {
        const { check_captures::<F>() };
        self.call("`try_visit_node`", Visit(closure), arguments).map_err(|error| *error)
    }

    fn runtime(&self) -> Target<Runtime> {
        Target { home: self.number, property: RUNTIME, _property: PhantomData }
    }

    /// Calls the runtime of the thread and waits for it, on behalf of the method `what`.
    #[track_caller]
    fn call<I, V>(&self, what: &str, invoke: I, arguments: V) -> CallResult<I::Output>
    where
        I: Invoke<Runtime, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let place = Location::caller();
        with_node(|node| {
            let Some(node) = node else { return Err(outside()) };
            if self.number == node.number() {
                if node.context().is_free() {
                    node.count_inline_call();
                }
                let _stay = node.stay();
                return Ok(invoke.invoke(&mut Runtime, arguments));
            }
            node.context().check_may_wait(what, place);
            node.call(self.runtime(), invoke, arguments)
        })
    }
}

/// Gives a fiber's result to its joiner.
struct Settle<U>(Promise<U>);

impl<U: Portable + Send> Completion for Settle<U> {
    fn complete(self, outcome: Outcome<'_>) {
        self.0.settle(outcome.result().map_err(|error| JoinError::Panicked {
            fiber: "a remote fiber".to_owned(),
            payload: Box::new(error.to_string()),
        }));
    }
}

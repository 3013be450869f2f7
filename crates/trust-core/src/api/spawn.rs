//! Fibers that are started on the thread of a [`Trustee`].

use std::any::type_name;
use std::panic::Location;

use fiber::{JoinError, JoinHandle, Promise};

use crate::api::apply::or_raise;
use crate::api::remote_fiber::{Begun, Started, begin};
use crate::api::trustee::Trustee;
use crate::client::completion::{Completion, boxed};
use crate::client::outcome::Outcome;
use crate::closure::invoke::{Delegable, Invoke, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, outside};
use crate::node::awaited::ReplyTo;
use crate::node::system::Runtime;
use crate::node::{CallSite, with_node};

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
        begin(reply_to, type_name::<F>(), move || Ok((self.0)(arguments)))
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

impl Trustee {
    /// Starts a fiber at this thread, wherever in the rack it is. The closure captures nothing;
    /// [`spawn_with`](Self::spawn_with) passes values.
    ///
    /// # Panics
    /// Outside a thread of the rack. Every other failure is one of [`JoinHandle::join`].
    #[track_caller]
    pub fn spawn<U, F>(&self, closure: F) -> JoinHandle<U>
    where
        U: Portable + Send,
        F: FnOnce() -> U + Delegable,
    {
        const { check_captures::<F>() };
        let place = Location::caller();
        or_raise(self.start(move |()| closure(), (), type_name::<F>(), place))
    }

    /// As [`spawn`](Self::spawn), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`spawn`](Self::spawn), and if the arguments' own code panics while they are encoded.
    #[track_caller]
    pub fn spawn_with<A, U, F>(&self, closure: F, arguments: A) -> JoinHandle<U>
    where
        A: Portable,
        U: Portable + Send,
        F: FnOnce(A) -> U + Delegable,
    {
        const { check_captures::<F>() };
        or_raise(self.start(closure, arguments, type_name::<F>(), Location::caller()))
    }

    fn start<A, U, F>(
        &self,
        closure: F,
        arguments: A,
        name: &'static str,
        place: CallSite,
    ) -> CallResult<JoinHandle<U>>
    where
        A: Portable,
        U: Portable + Send,
        F: FnOnce(A) -> U + Delegable,
    {
        with_node(|node| {
            let node = node.ok_or_else(outside)?;
            let thread = self.thread_in(node).ok_or_else(|| self.outside())?;
            let (promise, handle) = Promise::new();
            let reply_to = node.await_reply(thread, place, boxed(Settle { promise, name }));
            let started = Started::<false>::new(reply_to, thread);
            if self.is_here() {
                started.end(Ok(Start(closure).invoke(&mut Runtime, (reply_to, arguments))));
            } else {
                let arguments = (reply_to, arguments);
                node.request(self.runtime(), Start(closure), &arguments, started);
            }
            Ok(handle)
        })
    }
}

/// Gives a fiber's result to its joiner.
struct Settle<U> {
    promise: Promise<U>,
    /// The name of the fiber's closure.
    name: &'static str,
}

impl<U: Portable + Send> Completion for Settle<U> {
    fn complete(self, outcome: Outcome<'_>) {
        let Settle { promise, name } = self;
        promise.settle(outcome.caught::<U, _>(Outcome::result).map_err(|error| match error {
            DelegateError::Panicked { trustee, report } => JoinError::Panicked {
                fiber: format!("{name} on {trustee}"),
                payload: Box::new(report.message),
                place: report.place,
            },
            error => JoinError::Delegate(Box::new(error)),
        }));
    }
}

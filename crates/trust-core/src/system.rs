//! What threads of a rack ask of each other besides calls on properties: dropping trusts, and
//! replies that come later than the request's own.
//!
//! These requests are ordinary delegated calls on property zero of every node, a [`Runtime`].

use crate::{
    call::Apply,
    codec,
    completion::{Completion, Outcome},
    context::Context,
    error::{CodecError, DelegateError, Panic, PanicReport, catch},
    invoke::With,
    node::{Node, on_node},
    outbox::{Arguments, Request},
    registry::closure_id,
    wire::Status,
};
use serde::{Serialize, de::DeserializeOwned};
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
};
use transport_api::{HostId, LossReason, ThreadId};

/// Property zero of every node: the thread itself.
pub(crate) struct Runtime;

/// The number of the [`Runtime`] among a node's properties.
pub(crate) const RUNTIME: u32 = 0;

/// Puts the runtime property into a new node.
pub(crate) fn install(node: &Node) {
    // The runtime has one trust that is never dropped: the node's own.
    let (number, _) = node.insert(Runtime, 0);
    assert_eq!(number, RUNTIME, "the runtime is the first property of a node");
}

/// A call whose reply comes later.
struct Awaited {
    /// The upper half of its token: places in the table are used again.
    generation: u32,
    trustee: ThreadId,
    completion: Box<dyn FnOnce(Outcome<'_>)>,
}

/// What a node keeps for calls whose reply comes later.
#[derive(Default)]
pub(crate) struct System {
    awaited: RefCell<Slab<Awaited>>,
    generation: Cell<u32>,
}

/// Where a later reply goes: a thread and what it knows the call by.
#[derive(Clone, Copy, Serialize, serde::Deserialize)]
pub(crate) struct ReplyTo {
    thread: u32,
    token: u64,
}

impl ReplyTo {
    /// What the waiting thread knows the call by.
    pub(crate) fn token(self) -> u64 {
        self.token
    }
}

impl System {
    pub(crate) fn is_named(type_name: &str) -> bool {
        type_name == std::any::type_name::<Runtime>()
    }

    /// Ends every call that waits for `host`.
    pub(crate) fn lose(&self, host: HostId, reason: &LossReason, caught: &mut dyn FnMut(Panic)) {
        self.fail(
            |trustee| trustee.host == host,
            || DelegateError::PeerLost { host, reason: reason.clone() },
            caught,
        );
    }

    /// Ends every call whose trustee is `concerned`. `caught` gets the panics of completions.
    pub(crate) fn fail(
        &self,
        concerned: impl Fn(ThreadId) -> bool,
        error: impl Fn() -> DelegateError,
        caught: &mut dyn FnMut(Panic),
    ) {
        let tokens: Vec<_> = {
            let awaited = self.awaited.borrow();
            awaited.iter().filter(|(_, call)| concerned(call.trustee)).map(|(t, _)| t).collect()
        };
        for token in tokens {
            // A completion before this one may have ended it.
            let ended = self.awaited.borrow_mut().try_remove(token);
            let Some(Awaited { completion, .. }) = ended else { continue };
            catch(caught, || completion(Outcome::Failed(&error())));
        }
    }
}

impl System {
    /// Calls whose reply has not come yet.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.borrow().len()
    }
}

impl Node {
    /// Expects a later reply from `trustee`, which ends with `completion`.
    pub(crate) fn await_reply(
        &self,
        trustee: ThreadId,
        completion: Box<dyn FnOnce(Outcome<'_>)>,
    ) -> ReplyTo {
        let generation = self.system.generation.get().wrapping_add(1);
        self.system.generation.set(generation);
        let awaited = Awaited { generation, trustee, completion };
        let place = self.system.awaited.borrow_mut().insert(awaited) as u64;
        ReplyTo { thread: self.number(), token: u64::from(generation) << 32 | place }
    }

    /// Ends a call that expected a later reply. Tokens that mean nothing are ignored: the call has
    /// been ended by a loss.
    pub(crate) fn end_awaited(&self, token: u64, outcome: Outcome<'_>) {
        let place = token as u32 as usize;
        let ended = {
            let mut awaited = self.system.awaited.borrow_mut();
            let meant = awaited.get(place).is_some_and(|a| u64::from(a.generation) == token >> 32);
            if meant { awaited.try_remove(place) } else { None }
        };
        if let Some(Awaited { completion, .. }) = ended {
            let _stay = self.stay();
            let _context = self.context().enter_within(Context::Callback);
            catch(&mut |panic| self.report_panic(panic), || completion(outcome));
        }
    }

    /// Sends the later reply of a call: its result, or its panic.
    pub(crate) fn reply_later<U: Serialize + 'static>(
        &self,
        to: ReplyTo,
        result: Result<U, PanicReport>,
    ) {
        let _stay = self.stay();
        let encode = AssertUnwindSafe(|| match &result {
            Ok(value) => (Status::Done, codec::encode_to_vec(value)),
            Err(report) => (Status::Panicked, codec::encode_to_vec(report)),
        });
        // The caller must hear of it, whatever the result's own code does.
        let (status, encoded) = catch_unwind(encode).unwrap_or_else(|panic| {
            (Status::Done, Err(CodecError(PanicReport::taken(panic).message)))
        });
        let (status, payload) = encoded.map_or_else(
            |error| {
                let reason = format!("the result cannot be encoded: {error}");
                let payload = codec::encode_to_vec(&reason).expect("a string can be encoded");
                (Status::Refused, payload)
            },
            |payload| (status, payload),
        );
        let Some(client) = self.thread_numbered(to.thread) else { return };
        let arguments = (to.token, self.number(), status as u8, payload);
        self.tell(client, arguments, |_: &mut Runtime, (token, from, status, payload)| {
            on_node(|node| {
                let status = Status::from_bits(status.into()).unwrap_or(Status::Refused);
                let trustee = node.thread_numbered(from).unwrap_or(node.me);
                let payload = &payload;
                node.end_awaited(token, Outcome::Reply { trustee, status, payload });
            });
        });
    }

    /// Toggles trust ids of a property of `home`, behind every request that any of `users` has
    /// still queued for it.
    pub(crate) fn release(&self, home: u32, property: u32, ids: Vec<u64>, mut users: Vec<u32>) {
        let me = self.number();
        users.retain(|user| *user != me);
        if let Some(user) = users.pop().and_then(|user| self.thread_numbered(user)) {
            let relay = Relay { home, property, ids: ids.clone(), users: users.clone() };
            let pass_on = |_: &mut Runtime, (home, property, ids, users)| {
                on_node(|node| node.release(home, property, ids, users));
            };
            return self.tell_then(user, (home, property, ids, users), pass_on, relay);
        }
        if home == me {
            return self.run_or_defer(move |node| node.toggle(property, &ids));
        }
        let Some(home) = self.thread_numbered(home) else { return };
        self.tell(home, (property, ids), |_: &mut Runtime, (property, ids)| {
            on_node(|node| node.toggle(property, &ids));
        });
    }

    /// Toggles trust ids of a property of this thread, which dies if no trust is left.
    fn toggle(&self, property: u32, ids: &[u64]) {
        // Nobody has a trust of the runtime: who says so has broken the protocol, and would take
        // the runtime away from under the request that says it.
        if property != RUNTIME {
            self.bury(self.properties().toggle(property, ids));
        }
    }

    /// Has `closure` run by another thread's runtime, and waits for nothing.
    fn tell<V, F>(&self, thread: ThreadId, arguments: V, closure: F)
    where
        V: Serialize + DeserializeOwned + 'static,
        F: FnOnce(&mut Runtime, V) + Copy + 'static,
    {
        self.tell_then(thread, arguments, closure, Unawaited);
    }

    /// As [`tell`](Self::tell), with what to do when it has been done or has failed.
    fn tell_then<V, F, C>(&self, thread: ThreadId, arguments: V, closure: F, completion: C)
    where
        V: Serialize + DeserializeOwned + 'static,
        F: FnOnce(&mut Runtime, V) + Copy + 'static,
        C: Completion + 'static,
    {
        const { assert!(size_of::<F>() == 0, "runtime requests capture nothing") };
        if thread == self.me {
            return self.run_or_defer(move |_| closure(&mut Runtime, arguments));
        }
        let mut encoded = codec::Encoded::<{ crate::call::MIDDLING }>::new();
        if let Err(source) = encoded.encode(&arguments) {
            return self.report(DelegateError::Codec { what: "encode the arguments", source });
        }
        let request = Request {
            property: RUNTIME,
            closure: closure_id::<Apply<Runtime, V, With<F>>>(),
            arguments: Arguments::Encoded(encoded.bytes()),
            reply_words: 0,
        };
        self.send(self.number_of(thread), request, completion);
    }
}

/// Nobody waits for the runtime's requests; but a failure is worth knowing, unless the peer is
/// lost, which is known.
struct Unawaited;

impl Completion for Unawaited {
    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.result::<()>() {
            Ok(()) | Err(DelegateError::PeerLost { .. } | DelegateError::NoRack(_)) => {}
            Err(error) => {
                on_node(|node| node.report(error));
            }
        }
    }
}

/// Passes a release on when the user that should have done so is lost: what that user had queued is
/// lost with it. If it had passed the release on before, the ids are toggled twice, and the
/// property stays; it never dies too early.
struct Relay {
    home: u32,
    property: u32,
    ids: Vec<u64>,
    users: Vec<u32>,
}

impl Completion for Relay {
    fn complete(self, outcome: Outcome<'_>) {
        let Relay { home, property, ids, users } = self;
        on_node(|node| match outcome.result::<()>() {
            Ok(()) | Err(DelegateError::NoRack(_)) => {}
            Err(DelegateError::PeerLost { .. }) => node.release(home, property, ids, users),
            Err(error) => node.report(error),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Parts;

    #[test]
    fn nobody_can_take_the_runtime_away() {
        let node = Node::new(Parts {
            me: ThreadId { host: HostId(0), thread: 0 },
            rack: 0,
            threads: 1,
            outboxes: Box::new([None]),
            inboxes: Box::new([None]),
            arrivals: None,
            lanes: Box::new([]),
            all_mapped: true,
        });
        node.release(0, RUNTIME, vec![0], vec![]);
        assert!(node.properties().type_name(RUNTIME).is_some(), "the runtime is still there");
        let (other, _) = node.insert(5u8, 1);
        node.release(0, other, vec![1], vec![]);
        assert!(node.properties().type_name(other).is_none(), "others die with their last trust");
    }
}

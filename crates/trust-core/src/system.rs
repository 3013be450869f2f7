//! What threads of a rack ask of each other besides calls on properties: dropping trusts, and
//! replies that come later than the request's own.
//!
//! These requests are ordinary delegated calls on property zero of every node, a [`Runtime`].

use crate::{
    call::Apply,
    codec,
    completion::{Outcome, Source},
    error::{DelegateError, PanicReport},
    invoke::With,
    node::{Node, with_node},
    outbox::{Payload, Request},
    registry::closure_id,
    wire::{ReplyHead, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use slab::Slab;
use std::cell::RefCell;
use transport_api::{HostId, LossReason, ThreadId};

/// Property zero of every node: the thread itself.
pub(crate) struct Runtime;

/// The number of the [`Runtime`] among a node's properties.
pub(crate) const RUNTIME: u32 = 0;

/// Puts the runtime property into a new node.
pub(crate) fn install(node: &Node) {
    // The runtime has one trust that is never dropped: the node's own.
    let (number, _) = node.insert(Box::new(Runtime), 0);
    assert_eq!(number, RUNTIME, "the runtime is the first property of a node");
}

/// What ends a call whose reply comes later.
type Awaited = (ThreadId, Box<dyn FnOnce(Outcome<'_>)>);

/// What a node keeps for calls whose reply comes later.
#[derive(Default)]
pub(crate) struct System {
    awaited: RefCell<Slab<Awaited>>,
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
    pub(crate) fn lose(&self, host: HostId, reason: &LossReason) {
        self.fail(
            |trustee| trustee.host == host,
            || DelegateError::PeerLost { host, reason: reason.clone() },
        );
    }

    /// Ends every call whose trustee is `concerned`.
    pub(crate) fn fail(
        &self,
        concerned: impl Fn(ThreadId) -> bool,
        error: impl Fn() -> DelegateError,
    ) {
        let tokens: Vec<_> = {
            let awaited = self.awaited.borrow();
            awaited.iter().filter(|(_, (from, _))| concerned(*from)).map(|(t, _)| t).collect()
        };
        for token in tokens {
            let (_, completion) = self.awaited.borrow_mut().remove(token);
            completion(Outcome::failed(&Source::Failed(&error())));
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
        let token = self.system.awaited.borrow_mut().insert((trustee, completion));
        ReplyTo { thread: self.number_of(self.me), token: token as u64 }
    }

    /// Ends a call that expected a later reply. Tokens that mean nothing are ignored: the call has
    /// been ended by a loss.
    pub(crate) fn end_awaited(&self, token: u64, outcome: Outcome<'_>) {
        let ended = self.system.awaited.borrow_mut().try_remove(token as usize);
        if let Some((_, completion)) = ended {
            completion(outcome);
        }
    }

    /// Sends the later reply of a call: its result, or its panic.
    pub(crate) fn reply_later<U: Serialize + 'static>(
        &self,
        to: ReplyTo,
        result: Result<U, PanicReport>,
    ) {
        let (status, encoded) = match &result {
            Ok(value) => (Status::Done, codec::encode_to_vec(value)),
            Err(report) => (Status::Panicked, codec::encode_to_vec(report)),
        };
        let (status, payload) = encoded.map_or_else(
            |error| {
                let reason = format!("the result cannot be encoded: {error}");
                let payload = codec::encode_to_vec(&reason).expect("a string can be encoded");
                (Status::Refused, payload)
            },
            |payload| (status, payload),
        );
        let Some(client) = self.thread_numbered(to.thread) else { return };
        let arguments = (to.token, self.number_of(self.me), status as u8, payload);
        self.tell(client, arguments, |_: &mut Runtime, (token, from, status, payload)| {
            with_node(|node| {
                let Some(node) = node else { return };
                let status = match status {
                    0 => Status::Done,
                    1 => Status::Panicked,
                    _ => Status::Refused,
                };
                let trustee = node.thread_numbered(from).unwrap_or(node.me);
                let head = ReplyHead { status, bulk: true, at: 0, len: payload.len() };
                let source = Source::Bytes { trustee, payload: &payload };
                node.end_awaited(token, Outcome::reply(head.pack(), &source));
            });
        });
    }

    /// Toggles trust ids of a property of `home`, behind every request that any of `users` has
    /// still queued for it.
    pub(crate) fn release(&self, home: u32, property: u32, ids: Vec<u64>, mut users: Vec<u32>) {
        let me = self.number_of(self.me);
        users.retain(|user| *user != me);
        if let Some(user) = users.pop().and_then(|user| self.thread_numbered(user)) {
            let arguments = (home, property, ids, users);
            self.tell(user, arguments, |_: &mut Runtime, (home, property, ids, users)| {
                with_node(|node| {
                    if let Some(node) = node {
                        node.release(home, property, ids, users);
                    }
                });
            });
            return;
        }
        if home == me {
            self.run_or_defer(move |node| node.bury(node.properties().toggle(property, &ids)));
            return;
        }
        let Some(home) = self.thread_numbered(home) else { return };
        self.tell(home, (property, ids), |_: &mut Runtime, (property, ids)| {
            with_node(|node| {
                if let Some(node) = node {
                    node.bury(node.properties().toggle(property, &ids));
                }
            });
        });
    }

    /// Has `closure` run by another thread's runtime, and waits for nothing.
    pub(crate) fn tell<V, F>(&self, thread: ThreadId, arguments: V, closure: F)
    where
        V: Serialize + DeserializeOwned + 'static,
        F: FnOnce(&mut Runtime, V) + Copy + 'static,
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
            payload: Payload::Encoded(encoded.bytes()),
            reply_words: 0,
        };
        self.send(self.number_of(thread), request, Told);
    }
}

/// Nobody waits for the runtime's requests; but a failure is worth knowing, unless the peer is
/// lost, which is known.
struct Told;

impl crate::completion::Completion for Told {
    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.result::<()>() {
            Ok(()) | Err(DelegateError::PeerLost { .. } | DelegateError::NoRack(_)) => {}
            Err(error) => with_node(|node| {
                if let Some(node) = node {
                    node.report(error);
                }
            }),
        }
    }
}

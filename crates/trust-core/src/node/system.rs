//! Requests between threads of a rack besides calls on properties: the drops of trusts, and, in
//! `later.rs`, replies that come later than the request's own.
//!
//! These requests are ordinary delegated calls on property zero of every node, a [`Runtime`].

use std::marker::PhantomData;

use transport_api::ThreadId;

use crate::client::completion::Completion;
use crate::client::outcome::Outcome;
use crate::closure::invoke::With;
use crate::codec::Portable;
use crate::codec::trusts::{self, Record};
use crate::error::DelegateError;
use crate::node::entered::on_node;
use crate::node::request::Target;
use crate::node::state::Node;
use crate::trustee::count::{COUNTED, Release, mint};

/// Property zero of every node: the thread itself.
pub(crate) struct Runtime;

/// The number of the [`Runtime`] among a node's properties.
pub(crate) const RUNTIME: u32 = 0;

impl Target<'static, Runtime> {
    /// The runtime of the thread with this number.
    pub(crate) fn of_runtime(home: u32) -> Self {
        Target { home, property: RUNTIME, outbox: None, _property: PhantomData }
    }
}

/// Puts the runtime property into a new node.
pub(crate) fn install(node: &Node) {
    trusts::drop_trusts_by(|Record { home, property, id }| {
        on_node(|node| node.release(home, property, vec![id], Vec::new()));
    });
    // The runtime has one trust that is never dropped: the node's own.
    let (number, _) = node.insert(Runtime);
    assert_eq!(number, RUNTIME, "the runtime is the first property of a node");
}

impl Node {
    /// The type names of the properties that are alive here.
    pub fn alive(&self) -> Vec<&'static str> {
        let is_runtime = |name: &str| name == std::any::type_name::<Runtime>();
        self.properties.alive().into_iter().filter(|name| !is_runtime(name)).collect()
    }

    /// Serves the drop of a trust: toggles `ids` of a property of `home`, and keeps the property
    /// alive until everything that `users` have queued for it has been served (`count.rs` says
    /// how).
    pub(crate) fn release(&self, home: u32, property: u32, ids: Vec<u64>, users: Vec<u32>) {
        let Release { ids, users } =
            Release::new(ids, &users, self.number(), || mint(self.me.host.0));
        self.toggle_at(home, property, ids);
        for (user, id) in users {
            let toggle = |_: &mut Runtime, (home, property, id): (u32, u32, u64)| {
                on_node(|node| node.toggle_at(home, property, vec![id]));
            };
            let user = ThreadId::from_number(user, self.threads());
            self.tell(user, (home, property, id), toggle);
        }
    }

    /// Serves the drop of a counted trust of a property of this thread that has no children and no
    /// users. Only a drop that may be the last must wait for what has been deferred: the property
    /// dies by none but such a one.
    #[inline(always)]
    pub(crate) fn release_counted(&self, property: u32) {
        if !self.properties().uncount_unless_last(property) {
            self.run_in_order(move |node| node.toggle(property, &[COUNTED]));
        }
    }

    /// Toggles ids of a property of `home`, after everything that this thread has queued for it.
    fn toggle_at(&self, home: u32, property: u32, ids: Vec<u64>) {
        if home == self.number() {
            return self.run_in_order(move |node| node.toggle(property, &ids));
        }
        // Only a peer that breaks the protocol names a thread that the rack does not have.
        let Some(home) = self.thread_numbered(home) else { return };
        self.tell(home, (property, ids), |_: &mut Runtime, (property, ids)| {
            on_node(|node| node.toggle_served(property, ids));
        });
    }

    /// Serves a request to toggle ids of a property of this thread: after what has been deferred,
    /// as in [`run_in_order`](Self::run_in_order), or else now, since no other delegated code runs
    /// that may hold the property.
    fn toggle_served(&self, property: u32, ids: Vec<u64>) {
        if self.has_deferred() {
            self.defer(move |node| node.toggle(property, &ids));
        } else {
            self.toggle(property, &ids);
        }
    }

    /// Toggles trust ids of a property of this thread, which dies if no trust is left.
    fn toggle(&self, property: u32, ids: &[u64]) {
        // No trust of the runtime exists: a peer that names one has broken the protocol, and would
        // take the runtime away from under the request that says it.
        if property != RUNTIME {
            self.drop_property(self.properties().toggle(property, ids));
        }
    }

    /// Has `closure` run by another thread's runtime, and waits for nothing.
    pub(super) fn tell<V, F>(&self, thread: ThreadId, arguments: V, closure: F)
    where
        V: Portable,
        F: FnOnce(&mut Runtime, V) + Copy + 'static,
    {
        const { assert!(size_of::<F>() == 0, "runtime requests capture nothing") };
        if thread == self.me {
            return self.run_or_defer(move |_| closure(&mut Runtime, arguments));
        }
        let target = Target::of_runtime(self.number_of(thread));
        self.request(target, With(closure), &arguments, Unawaited);
    }
}

/// The runtime's requests are fire-and-forget. Failures are reported, unless the peer is lost,
/// which has its own event.
struct Unawaited;

impl Completion for Unawaited {
    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        match outcome.result::<()>() {
            Ok(()) | Err(DelegateError::PeerLost { .. } | DelegateError::NoRack(_)) => {}
            Err(error) => {
                on_node(|node| node.report(error, None));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use transport_api::HostId;

    use super::*;
    use crate::closure::context::Context;
    use crate::node::outboxes::Outboxes;
    use crate::node::state::Parts;
    use crate::trustee::inboxes::Inboxes;

    /// A node without peers.
    pub(in crate::node) fn node() -> std::rc::Rc<Node> {
        let node = Node::new(Parts {
            me: ThreadId { host: HostId(0), thread: 0 },
            rack: 0,
            threads: 1,
            outboxes: Outboxes::new(Box::new([None])),
            inboxes: Inboxes::new(Box::new([None]), None),
            progress: progress::Progress::new(Vec::new(), true),
            handoffs: [Default::default()].into(),
        });
        install(&node);
        node
    }

    #[test]
    fn no_peer_can_take_the_runtime_away() {
        let node = node();
        node.release(0, RUNTIME, vec![COUNTED], vec![]);
        assert!(node.properties().type_name(RUNTIME).is_some(), "the runtime is still there");
        let (other, _) = node.insert(5u8);
        node.release(0, other, vec![COUNTED], vec![]);
        assert!(node.properties().type_name(other).is_none(), "others die with their last trust");
    }

    #[test]
    fn a_drop_does_not_overtake_calls_that_were_deferred() {
        let node = Node::enter(node());
        let (number, tag) = node.insert(5u8);
        let found = std::rc::Rc::new(std::cell::Cell::new(false));
        let serving = node.context().enter(Context::Serving);
        let note = found.clone();
        node.defer(move |node| note.set(node.properties().find(number, tag).is_some()));
        node.toggle_served(number, vec![COUNTED]);
        drop(serving);
        node.run_deferred();
        assert!(found.get(), "the property was there for the call");
        assert!(node.properties().type_name(number).is_none(), "and died behind it");
    }

    #[test]
    fn threads_and_properties_that_do_not_exist_are_ignored() {
        let node = node();
        let (number, _) = node.insert(5u8);
        for home in [1, 7, u32::MAX] {
            node.toggle_at(home, number, vec![COUNTED]);
        }
        node.toggle_at(0, u32::MAX, vec![COUNTED]);
        assert!(node.properties().type_name(number).is_some(), "its own trust was not toggled");
        node.toggle_at(0, number, vec![COUNTED]);
        assert!(node.properties().type_name(number).is_none(), "and now it was");
        assert!(node.take_incidents().is_empty());
    }
}

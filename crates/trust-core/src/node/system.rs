//! Requests between threads of a rack besides calls on properties: drops of trusts, and replies
//! that come later than the request's own.
//!
//! These requests are ordinary delegated calls on property zero of every node, a [`Runtime`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use primitive::limits::{INLINE_BYTES, MESSAGE_BYTES};
use serde::Serialize;
use serde::de::DeserializeOwned;
use transport_api::ThreadId;

use crate::client::completion::{Boxed, Completion};
use crate::client::outcome::Outcome;
use crate::client::request::{Arguments, Request};
use crate::closure::call::Apply;
use crate::closure::context::Context;
use crate::closure::invoke::With;
use crate::closure::registry::closure_id;
use crate::codec;
use crate::codec::trusts::{self, Record};
use crate::error::{BadValue, CodecError, DelegateError, PanicReport, Refusal, catch};
use crate::node::awaited::{Awaited, Awaiting, CallSite, EarlyReply, ReplyTo, Unasked};
use crate::node::awaits::Thread;
use crate::node::entered::on_node;
use crate::node::state::Node;
use crate::trustee::count::{COUNTED, Release, mint};
use crate::wire::copy::STACK_BYTES;
use crate::wire::words::Status;

/// Property zero of every node: the thread itself.
pub(crate) struct Runtime;

/// Bytes of the encoded result of a later reply, at most: it travels as an argument of a request,
/// whose other arguments and header need room in the same message. Few in this crate's own tests.
const LATER_BYTES: usize = if cfg!(test) { 16 * 1024 } else { MESSAGE_BYTES - 64 };

/// The number of the [`Runtime`] among a node's properties.
pub(crate) const RUNTIME: u32 = 0;

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

    /// Expects a later reply from `trustee` to a call made at `place`, which ends with
    /// `completion`.
    pub(crate) fn await_reply(
        &self,
        trustee: ThreadId,
        place: CallSite,
        completion: Box<dyn FnOnce(Outcome<'_>)>,
    ) -> ReplyTo {
        self.awaits(trustee, place, true, Awaiting::Here(completion))
    }

    /// As [`await_reply`](Self::await_reply), for a call whose request has the completion: its reply
    /// may end the call ([`forget_awaited`](Self::forget_awaited)), or say that it goes on
    /// ([`await_further`](Self::await_further)).
    pub(crate) fn await_in_request(&self, trustee: ThreadId, place: CallSite) -> ReplyTo {
        self.awaits(trustee, place, true, Awaiting::InRequest)
    }

    /// The request of a call has been answered, and the call goes on: the later reply ends it with
    /// `completion`.
    #[cold]
    pub(crate) fn await_further(&self, token: u64, completion: Boxed) {
        let mut awaited = self.awaited_calls.awaited.borrow_mut();
        let place = token as u32 as usize;
        let Some(call) = awaited.get_mut(place).filter(|call| call.has(token)) else { return };
        match std::mem::replace(&mut call.completion, Awaiting::Here(completion)) {
            Awaiting::InRequest | Awaiting::Here(_) => {}
            Awaiting::Overtaken(reply) => {
                drop(awaited);
                self.awaited_calls.release_early(&reply);
                let EarlyReply { trustee, status, payload } = *reply;
                self.end_awaited(token, Outcome::Reply { trustee, status, payload: &payload });
            }
        }
    }

    /// The request of a call has been answered, and the call with it.
    #[inline]
    pub(crate) fn forget_awaited(&self, token: u64) {
        if let Some(Awaited { completion: Awaiting::Overtaken(reply), .. }) =
            self.take_awaited(token)
        {
            self.awaited_calls.release_early(&reply);
            give_back(reply.status, &reply.payload);
        }
    }

    #[inline]
    fn take_awaited(&self, token: u64) -> Option<Awaited> {
        let mut awaited = self.awaited_calls.awaited.borrow_mut();
        let place = token as u32 as usize;
        if awaited.get(place)?.has(token) { awaited.try_remove(place) } else { None }
    }

    /// As [`await_reply`](Self::await_reply), for a call that may wait for ever: the end of the rack
    /// does not wait for it.
    pub(crate) fn await_idly(
        &self,
        trustee: ThreadId,
        place: CallSite,
        completion: Box<dyn FnOnce(Outcome<'_>)>,
    ) -> ReplyTo {
        self.awaits(trustee, place, false, Awaiting::Here(completion))
    }

    fn awaits(
        &self,
        trustee: ThreadId,
        place: CallSite,
        counts: bool,
        completion: Awaiting,
    ) -> ReplyTo {
        let generation = self.awaited_calls.generation.get().wrapping_add(1);
        self.awaited_calls.generation.set(generation);
        let awaited = Awaited { generation, trustee, place, counts, completion };
        let place = self.awaited_calls.awaited.borrow_mut().insert(awaited) as u64;
        ReplyTo { thread: self.number(), token: u64::from(generation) << 32 | place }
    }

    /// Where the call that expects a later reply was made; `None` if it has ended.
    pub(crate) fn place_of(&self, token: u64) -> Option<CallSite> {
        let awaited = self.awaited_calls.awaited.borrow();
        let call = awaited.get(token as u32 as usize)?;
        call.has(token).then_some(call.place)
    }

    /// Ends a call that expected a later reply. Tokens that mean nothing are ignored: the call has
    /// been ended by a loss. A host is given up whose reply belongs to no call of its own.
    pub(crate) fn end_awaited(&self, token: u64, outcome: Outcome<'_>) {
        if let Outcome::Reply { trustee, status, payload } = outcome {
            match self.awaited_calls.keep_early(trustee, token, status, payload) {
                Ok(true) => return,
                Ok(false) => {}
                // That ends calls, in free context.
                Err(Unasked) => return self.defer(move |node| node.give_up(trustee)),
            }
        }
        if let Some(Awaited { completion: Awaiting::Here(completion), .. }) =
            self.take_awaited(token)
        {
            let _stay = self.stay();
            let _context = self.context().enter_within(Context::Callback);
            catch(&mut |panic| self.report_panic(panic), || completion(outcome));
        } else if let Outcome::Reply { status, payload, .. } = outcome {
            give_back(status, payload);
        }
    }

    /// Sends the later reply of a call: its result, its panic, or why it did not run.
    pub(crate) fn reply_later<U: Serialize + 'static>(
        &self,
        to: ReplyTo,
        result: Result<Result<U, String>, PanicReport>,
    ) {
        let Some(client) = self.thread_numbered(to.thread) else { return };
        let _stay = self.stay();
        let encode = AssertUnwindSafe(|| match &result {
            Ok(Ok(value)) => (Status::Done, codec::encode_to_vec(value)),
            Ok(Err(reason)) => {
                (Status::Refused, codec::encode_to_vec(&Refusal::Refused(reason.clone())))
            }
            Err(report) => (Status::Panicked, codec::encode_to_vec(report)),
        });
        // The caller must get a reply, whatever the result's own code does.
        let (status, encoded) = catch_unwind(encode)
            .unwrap_or_else(|panic| (Status::Done, Err(CodecError::of_panic(panic))));
        let encoded = encoded.and_then(|payload| match payload.len() {
            0..=LATER_BYTES => Ok(payload),
            len => {
                codec::give_back(&payload);
                Err(CodecError(format!(
                    "the value has {len} bytes encoded, expected at most {LATER_BYTES}: send it in \
                     parts"
                )))
            }
        });
        let (status, payload) = encoded.map_or_else(
            |error| {
                let refusal = Refusal::Result(BadValue::unencodable::<U>(error));
                let payload = codec::encode_to_vec(&refusal).expect("strings can be encoded");
                (Status::Refused, payload)
            },
            |payload| (status, payload),
        );
        let arguments = (to.token, status as u8, payload);
        self.tell(client, arguments, |_: &mut Runtime, (token, status, payload)| {
            on_node(|node| {
                let status = Status::from_bits(status.into()).unwrap_or(Status::Refused);
                // What a thread tells itself is not served as a request.
                let trustee = node.context().client().unwrap_or(node.me);
                let payload = &payload;
                node.end_awaited(token, Outcome::Reply { trustee, status, payload });
            });
        });
    }

    /// Serves the drop of a trust: toggles `ids` of a property of `home`, and keeps the property
    /// alive until everything that `users` have queued for it has been served (`count.rs` says
    /// how).
    pub(crate) fn release(&self, home: u32, property: u32, ids: Vec<u64>, users: Vec<u32>) {
        let Release { ids, users } = Release::new(ids, &users, self.number(), mint);
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

    /// Toggles ids of a property of `home`, behind everything that this thread has queued for it.
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

    /// Serves a request to toggle ids of a property of this thread: behind what has been deferred,
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
    fn tell<V, F>(&self, thread: ThreadId, arguments: V, closure: F)
    where
        V: Serialize + DeserializeOwned + 'static,
        F: FnOnce(&mut Runtime, V) + Copy + 'static,
    {
        const { assert!(size_of::<F>() == 0, "runtime requests capture nothing") };
        if thread == self.me {
            return self.run_or_defer(move |_| closure(&mut Runtime, arguments));
        }
        let mut encoded = codec::Encoded::<{ STACK_BYTES }>::new();
        if let Err(source) = encoded.encode(&arguments) {
            return self.report(self.unencodable::<V>(self.number_of(thread), source), None);
        }
        let (home, closure) = (self.number_of(thread), closure_id::<Apply<Runtime, V, With<F>>>());
        if encoded.len() > INLINE_BYTES {
            let bytes = encoded.take_bytes().into_owned();
            return self.send_large((home, RUNTIME), closure, 0, bytes, Unawaited);
        }
        let arguments = Arguments::Encoded(encoded.bytes());
        let request = Request { property: RUNTIME, closure, arguments, reply_words: 0 };
        self.send(home, request, Unawaited);
    }
}

impl TryFrom<(u32, u64)> for ReplyTo {
    type Error = String;

    fn try_from((thread, token): (u32, u64)) -> Result<Self, String> {
        let is_other = |node: &Node| {
            node.context().client().filter(|client| node.number_of(*client) != thread)
        };
        match on_node(is_other).flatten() {
            None => Ok(ReplyTo { thread, token }),
            Some(client) => Err(format!(
                "the reply would go to {}, expected the sender, {client}",
                Thread(thread)
            )),
        }
    }
}

/// Gives back what nothing will take of a later reply.
fn give_back(status: Status, payload: &[u8]) {
    if status == Status::Done {
        codec::give_back(payload);
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
mod tests {
    use transport_api::HostId;

    use super::*;
    use crate::node::state::Parts;

    fn node() -> std::rc::Rc<Node> {
        let node = Node::new(Parts {
            me: ThreadId { host: HostId(0), thread: 0 },
            rack: 0,
            threads: 1,
            outboxes: Box::new([None]),
            inboxes: Box::new([None]),
            arrivals: None,
            progress: progress::Progress::new(Vec::new(), true),
            handoffs: [Default::default()].into(),
        });
        install(&node);
        node
    }

    #[test]
    fn the_largest_later_reply_has_room_in_a_message() {
        let payload = vec![0u8; 100];
        let arguments = (u64::MAX, u8::MAX, payload.clone());
        let encoded = codec::encode_to_vec(&arguments).expect("bytes");
        assert!(encoded.len() - payload.len() <= 64, "{} bytes", encoded.len());
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
    fn a_call_is_ended_once_by_replies_that_come_before_its_request_is_answered() {
        let node = Node::enter(node());
        let token = node.await_in_request(node.me, std::panic::Location::caller()).token();
        let reply = |value: u64| {
            let (trustee, payload) = (node.me, &value.to_le_bytes()[..]);
            node.end_awaited(token, Outcome::Reply { trustee, status: Status::Done, payload });
        };
        let ended = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let further = || {
            let ended = ended.clone();
            let done =
                move |outcome: Outcome<'_>| ended.borrow_mut().extend(outcome.result::<u64>());
            node.await_further(token, Box::new(done));
        };
        reply(1);
        reply(2);
        assert!(ended.borrow().is_empty());
        assert_eq!(node.awaited_calls.awaited(), 1);
        further();
        reply(3);
        further();
        assert_eq!(*ended.borrow(), [1]);
        assert_eq!(node.awaited_calls.awaited(), 0);
        assert!(node.awaited_calls.keeps_nothing());
    }

    #[test]
    fn replies_of_hosts_that_were_not_asked_end_no_call() {
        let node = Node::enter(node());
        let place = std::panic::Location::caller();
        let [asked, same_host, other] =
            [(1, 0), (1, 1), (2, 0)].map(|(host, thread)| ThreadId { host: HostId(host), thread });
        let ended = std::rc::Rc::new(std::cell::Cell::new(0));
        let note = ended.clone();
        let here = node.await_reply(asked, place, Box::new(move |_| note.set(note.get() + 1)));
        let in_request = node.await_in_request(asked, place);
        let reply = |trustee, to: ReplyTo| {
            let outcome = Outcome::Reply { trustee, status: Status::Refused, payload: &[] };
            node.end_awaited(to.token(), outcome);
        };
        reply(other, here);
        reply(other, in_request);
        assert_eq!(ended.get(), 0);
        node.await_further(in_request.token(), Box::new(|_| panic!("no reply was kept")));
        reply(same_host, here);
        assert_eq!(ended.get(), 1);
        assert_eq!(node.awaited_calls.awaited(), 1);
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

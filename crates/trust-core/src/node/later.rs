//! Replies that come later than the request's own, as those of launches do: what a call expects of
//! them, and how they are sent, as requests of the [`Runtime`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use primitive::limits::MESSAGE_BYTES;
use serde::Serialize;
use transport_api::ThreadId;

use crate::client::completion::Boxed;
use crate::client::outcome::Outcome;
use crate::closure::context::Context;
use crate::codec;
use crate::error::{BadValue, CodecError, PanicReport, Refusal, catch};
use crate::node::awaited::{Awaited, Awaiting, CallSite, EarlyReply, ReplyTo, Unasked};
use crate::node::awaits::Thread;
use crate::node::entered::on_node;
use crate::node::state::Node;
use crate::node::system::Runtime;
use crate::wire::words::Status;

/// Bytes of the encoded result of a later reply, at most: it travels as an argument of a request,
/// whose other arguments and header need room in the same message. Few in this crate's own tests.
const LATER_BYTES: usize = if cfg!(test) { 16 * 1024 } else { MESSAGE_BYTES - 64 };

impl Node {
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
    #[inline]
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
        let mut awaited = self.awaited_calls.awaited.borrow_mut();
        let place = token as u32 as usize;
        let Some(call) = awaited.get(place).filter(|call| call.has(token)) else { return };
        if let Awaiting::InRequest = call.completion {
            // Nothing in it needs to be dropped.
            std::mem::forget(awaited.remove(place));
        } else {
            drop(awaited);
            self.forget_overtaken(token);
        }
    }

    /// As [`forget_awaited`](Self::forget_awaited), of a call whose later reply came first.
    #[cold]
    #[inline(never)]
    fn forget_overtaken(&self, token: u64) {
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

    #[inline]
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
        // The trusts in the payload do not belong to the request, which would give back only its own.
        if client != self.me && self.is_closed_to(to.thread) {
            return give_back(status, &payload);
        }
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
}

impl ReplyTo {
    /// Where a later reply to the request goes that is being served on `node`, to its sender's call with
    /// this token.
    #[inline]
    pub(crate) fn client_of(node: &Node, token: u64) -> ReplyTo {
        let client = node.context().client().unwrap_or(node.me);
        ReplyTo { thread: node.number_of(client), token }
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

#[cfg(test)]
mod tests {
    use transport_api::HostId;

    use super::*;
    use crate::node::system::tests::node;

    #[test]
    fn the_largest_later_reply_has_room_in_a_message() {
        let payload = vec![0u8; 100];
        let arguments = (u64::MAX, u8::MAX, payload.clone());
        let encoded = codec::encode_to_vec(&arguments).expect("bytes");
        assert!(encoded.len() - payload.len() <= 64, "{} bytes", encoded.len());
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
}

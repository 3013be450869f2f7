//! Calls of plain bytes, for layers above that send bytes anyhow: [`Trust::plain_call`] and
//! [`Trust::plain_call_then`], and what such layers must know of threads.

use std::num::NonZero;
use std::panic::Location;

use primitive::limits::MESSAGE_BYTES;

use crate::Trust;
use crate::client::completion::Completion;
use crate::client::outbox::Outbox;
use crate::client::outcome::Outcome;
use crate::client::plain_completion::{PlainEnd, PlainResult, TellPlain, WakePlain};
use crate::client::request::{Arguments, Parts, Request};
use crate::client::waiter::Waiter;
use crate::closure::plain_bytes::result_words;
use crate::closure::plain_call::{PlainCall, Serve, run_layout};
use crate::closure::registry::{closure_id, registry};
use crate::codec;
use crate::error::outside;
use crate::node::awaits::AwaitsReply;
use crate::node::racks::outside_of;
use crate::node::{Node, current, on_node, recent};
use crate::trustee::count::COUNTED;
use crate::wire::words::WORD;

impl<T: 'static> Trust<T> {
    /// Makes a call of kind `C` with `word` and the bytes of `head`, and waits for its result. `tails`
    /// follow, each at the next multiple of eight; where `C::BYTES` is a number, it is the length of
    /// `head`, and there are none.
    ///
    /// `None` if the property is this thread's own: there is nothing to send then.
    ///
    /// # Errors
    /// Inside: what [`PlainCall::serve`] has returned. Outside: as of [`Trust::try_apply`].
    ///
    /// # Panics
    /// In delegated context, where waiting is not allowed.
    #[cfg_attr(optimised, inline(always))]
    #[track_caller]
    pub fn plain_call<C: PlainCall<T>>(
        &self,
        word: u64,
        head: &[u8],
        tails: &[&[u8]],
    ) -> Option<PlainResult<C::Reply, C::Error>> {
        let place = Location::caller();
        match current(self) {
            Some(node) if self.is_at(node) => None,
            Some(node) => {
                let Some(outbox) = node.outbox_at(self.home) else {
                    return Some(Err(*outside_of(self.home)));
                };
                node.context().check_may_wait("a call", place);
                let Some(waiter) = Waiter::new() else { return Some(Err(*outside())) };
                let completion = WakePlain::<T, C>::new(waiter.wake());
                let parts = Parts { word, key: None, head, tails };
                self.send_plain::<C, _>(node, outbox, parts, completion);
                Some(waiter.wait(place, AwaitsReply::of).map_err(|error| *error))
            }
            None => Some(Err(*outside_of(self.home))),
        }
    }

    /// As [`plain_call`](Self::plain_call), without waiting: `then` gets the result, on this thread, exactly
    /// once. Calls by [`plain_call_again`](Self::plain_call_again) may follow, if the word has a `key`: an
    /// address of the caller's, which is no other word's of this property.
    ///
    /// # Errors
    /// `then`, if the property is this thread's own or the thread does not belong to the rack.
    #[cfg_attr(optimised, inline(always))]
    pub fn plain_call_then<C: PlainCall<T>, F: PlainEnd<C::Reply, C::Error>>(
        &self,
        (word, key): (u64, Option<NonZero<usize>>),
        head: &[u8],
        tails: &[&[u8]],
        then: F,
    ) -> Result<(), F> {
        let Some(node) = current(self) else { return Err(then) };
        let Some(outbox) = self.outbox_of(node) else { return Err(then) };
        node.note_recent(outbox);
        if let Some(key) = key {
            outbox.set_key(word, key);
        }
        let parts = Parts { word, key, head, tails };
        self.send_plain::<C, _>(node, outbox, parts, TellPlain::<F, T, C>::new(then));
        Ok(())
    }

    /// As [`plain_call_then`](Self::plain_call_then) without tails, for the word to which an earlier call of
    /// this property gave this `key`. One key is remembered per trustee. A call with another word, or an
    /// encoded call, replaces it; after a call of another property it is not used.
    ///
    /// # Errors
    /// `then`, if `key` is not remembered: look the word up and use `plain_call_then`.
    #[cfg_attr(optimised, inline(always))]
    pub fn plain_call_again<C: PlainCall<T>, F: PlainEnd<C::Reply, C::Error>>(
        &self,
        key: NonZero<usize>,
        head: &[u8],
        then: F,
    ) -> Result<(), F> {
        let property = self.cached_name();
        let outbox = recent(self).filter(|outbox| outbox.was_last(property));
        let Some((outbox, word)) = outbox.and_then(|it| Some((it, it.word_of_key(key)?))) else {
            return Err(then);
        };
        // One for each use: the second one's address is taken, which would keep that of both in memory.
        let parts = || Parts { word, key: Some(key), head, tails: &[] };
        let then = TellPlain::<F, T, C>::new(then);
        if let Err(then) = outbox.append_plain::<Serve<T, C>, _>(property, parts(), then) {
            let Some(node) = current(self) else { return Err(then.then()) };
            node.send_one_in_next::<Serve<T, C>, _>(outbox, property, parts(), then);
        }
        Ok(())
    }

    #[cfg_attr(optimised, inline(always))]
    fn send_plain<C: PlainCall<T>, D: Completion + 'static>(
        &self,
        node: &Node,
        outbox: &Outbox,
        parts: Parts<'_>,
        completion: D,
    ) {
        debug_assert!(C::BYTES.is_none_or(|len| len == parts.head.len() && parts.tails.is_empty()));
        if const { run_layout::<T, C>().is_some() } {
            let name = outbox.name_of(self.property);
            return node.send_plain_by::<Serve<T, C>, D>(outbox, name, parts, completion);
        }
        if parts.words() > MESSAGE_BYTES / WORD {
            let source = codec::too_large(parts.words() * WORD);
            return completion
                .complete(Outcome::Failed(&node.unencodable::<C>(self.home.number(), source)));
        }
        let request = Request {
            property: self.property,
            closure: closure_id::<Serve<T, C>>(),
            arguments: Arguments::Bytes(parts),
            // The first word of the result takes the place of the head.
            reply_words: const { result_words::<C::Reply>().saturating_sub(1) },
        };
        node.send_by(outbox, request, completion);
    }

    /// The thread of the property as a number that no other thread has, of this rack or of another
    /// one that this process takes part in.
    #[cfg_attr(optimised, inline(always))]
    pub fn home(&self) -> u64 {
        self.home.word()
    }
}

/// A new trust of the property whose call this thread serves; `None` outside such calls, and if the
/// property is no `T`.
pub fn served<T: 'static>() -> Option<Trust<T>> {
    on_node(|node| {
        let number = node.context().served()?.property();
        let tag = registry().tag_of::<T>();
        node.properties().find(number, tag)?;
        node.properties().count(number).then(|| Trust::with_id(node.id, number, tag, COUNTED))
    })?
}

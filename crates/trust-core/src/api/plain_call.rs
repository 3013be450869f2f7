//! Calls of plain bytes, for layers above that send bytes anyhow: [`Trust::plain_call`] and
//! [`Trust::plain_call_then`], and what such layers must know of threads.

use std::num::NonZero;
use std::panic::Location;

use primitive::limits::MESSAGE_BYTES;

use crate::Trust;
use crate::client::completion::Completion;
use crate::client::outbox::Outbox;
use crate::client::outcome::Outcome;
use crate::client::plain_completion::{PlainResult, TellPlain, WakePlain};
use crate::client::request::{Arguments, Parts, Request};
use crate::client::waiter::Waiter;
use crate::closure::plain_bytes::{PlainBytes, reply_words};
use crate::closure::plain_call::{Again, PlainCall, Serve};
use crate::closure::registry::{closure_id, registry};
use crate::codec;
use crate::error::outside;
use crate::node::awaits::AwaitsReply;
use crate::node::racks::outside_of;
use crate::node::{Node, current, on_node};
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
                let Some(fiber) = fiber::waiting() else { return Some(Err(*outside())) };
                let waiter = Waiter::new(fiber);
                let completion = WakePlain::<C::Reply, C::Error>(waiter.wake());
                let parts = parts::<T, C>(word, None, head, tails);
                self.send_plain::<C, _>(node, outbox, parts, completion);
                Some(waiter.wait(place, AwaitsReply::of).map_err(|error| *error))
            }
            None => Some(Err(*outside_of(self.home))),
        }
    }

    /// As [`plain_call`](Self::plain_call), without waiting: what `wrap` makes of `then` is called with
    /// the result, on this thread, exactly once. Calls by [`plain_call_again`](Self::plain_call_again)
    /// may follow, if the word has a `name`.
    ///
    /// # Errors
    /// `then`, uncalled, if the property is this thread's own or the thread is none of the rack.
    #[cfg_attr(optimised, inline(always))]
    pub fn plain_call_then<C: PlainCall<T>, G, F>(
        &self,
        (word, name): (u64, Option<NonZero<usize>>),
        head: &[u8],
        tails: &[&[u8]],
        then: G,
        wrap: impl FnOnce(G) -> F,
    ) -> Result<(), G>
    where
        F: FnOnce(PlainResult<C::Reply, C::Error>) + 'static,
    {
        let Some(node) = current(self) else { return Err(then) };
        let Some(outbox) = self.outbox_of(node) else { return Err(then) };
        let completion = TellPlain::<F, C::Reply, C::Error>::new(wrap(then));
        let parts = parts::<T, C>(word, name, head, tails);
        self.send_plain::<C, _>(node, outbox, parts, completion);
        Ok(())
    }

    /// As [`plain_call_then`](Self::plain_call_then), with the word of the call of plain bytes before it, if
    /// that had this `name` and is in the batch which is being filled. A name is an address of the
    /// caller's, by which it knows its word before it has looked that up.
    ///
    /// # Errors
    /// `then`, uncalled, if there is no such call or the batch is full.
    #[cfg_attr(optimised, inline(always))]
    pub fn plain_call_again<C: PlainCall<T>, G, F>(
        &self,
        name: NonZero<usize>,
        head: &[u8],
        then: G,
        wrap: impl FnOnce(G) -> F,
    ) -> Result<(), G>
    where
        F: FnOnce(PlainResult<C::Reply, C::Error>) + 'static,
    {
        let Some(node) = current(self) else { return Err(then) };
        let Some(outbox) = self.outbox_of(node) else { return Err(then) };
        let (parts, words) = (parts::<T, C>(0, Some(name), head, &[]), plain_words::<C::Reply>());
        match outbox.append_again::<TellPlain<F, C::Reply, C::Error>>(
            name,
            self.property,
            parts,
            words,
        ) {
            Some(written) => {
                outbox.complete_with(written, TellPlain::new(wrap(then)));
                Ok(())
            }
            None => Err(then),
        }
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
        if parts.words() > MESSAGE_BYTES / WORD {
            let source = codec::too_large(parts.words() * WORD);
            return completion
                .complete(Outcome::Failed(&node.unencodable::<C>(self.home.number(), source)));
        }
        let request = Request {
            property: self.property,
            closure: closure_id::<Serve<T, C>>(),
            arguments: Arguments::Bytes(parts),
            reply_words: plain_words::<C::Reply>(),
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

#[cfg_attr(optimised, inline(always))]
fn parts<'a, T: 'static, C: PlainCall<T>>(
    word: u64,
    name: Option<NonZero<usize>>,
    head: &'a [u8],
    tails: &'a [&'a [u8]],
) -> Parts<'a> {
    let name = name.map_or(0, NonZero::get);
    Parts { word, head, tails, name, again: closure_id::<Again<T, C>>() }
}

/// Words behind the head that a call with its word needs for its result: one more than a call without, so
/// that results of a run are as far apart as arguments.
#[cfg_attr(optimised, inline(always))]
const fn plain_words<R: PlainBytes>() -> usize {
    1 + reply_words::<R>()
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

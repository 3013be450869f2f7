//! Calls of plain bytes by the name of their word: one comparison finds that the open batch has it.
//!
//! A layer above gives a word a name, which it knows without looking the word up: an address of its own.
//! While a batch is being filled, calls with the name of the last one leave the word out.

use std::num::NonZero;

use primitive::sync::Ordering;

use crate::client::completion::Completion;
use crate::client::completion_list::Room;
use crate::client::outbox::Outbox;
use crate::client::request::Parts;
use crate::wire::words::RequestHead;

/// The place of a request that has been written, for its completion.
pub(crate) struct Written {
    room: Room,
    /// The word of its head.
    at: usize,
    words: usize,
}

impl Outbox {
    /// Puts a call of plain bytes with this name of its word, and with a head only, into the batch that is
    /// open. `None` if the last call of the batch had another name, or there is no room for this one. Else
    /// the completion is to be [added](Self::complete_with) before anything else is done here.
    #[inline(always)]
    pub(crate) fn append_again<C: Completion>(
        &self,
        name: NonZero<usize>,
        property: u32,
        parts: Parts<'_>,
        reply_words: usize,
    ) -> Option<Written> {
        if self.last_name.get() != name.get() {
            return None;
        }
        self.close_run();
        let words = parts.words().max(reply_words) - 1;
        let head = RequestHead::new(property, parts.again, words, false);
        let mut others = parts.head_words();
        let room = self.filling.room::<C>()?;
        let at = self.slot.append(words, head, others.next())?;
        others.enumerate().for_each(|(index, word)| {
            self.slot.memory().words().store(at + 2 + index, word, Ordering::Relaxed);
        });
        Some(Written { room, at, words })
    }

    /// Adds the completion of a request that has just been written.
    #[inline(always)]
    pub(crate) fn complete_with<C: Completion + 'static>(&self, written: Written, completion: C) {
        let Written { room, at, words } = written;
        self.filling.push(room, at, words, completion);
    }
}

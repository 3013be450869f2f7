//! [`Watched`]: where anything arrives for a thread, over all of its lanes: notice slots, and words of
//! shared memory that change when a poll is due.
//!
//! A thread that waits for a notification looks there, in place of a call of each lane. It is noted
//! while there is nothing to poll for, and counts until a word changes or a lane is used.

use std::cell::{Cell, RefCell};

use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{NoticeInbox, Notification, Watch};

/// A word that a lane looks at.
struct Word {
    memory: SharedBytes,
    at: usize,
    /// What was in it when it was noted.
    seen: u64,
}

/// What [`Watched::look`] has found.
pub(crate) enum Seen {
    /// A notification.
    Notified(Notification),
    /// Nothing.
    Nothing,
    /// It is not known where to look, or a poll is due.
    Unknown,
}

#[derive(Default)]
struct Places {
    inboxes: Vec<NoticeInbox>,
    words: Vec<Word>,
}

/// Where the lanes of a thread look.
#[derive(Default)]
pub(crate) struct Watched {
    places: RefCell<Places>,
    is_known: Cell<bool>,
}

impl Watched {
    /// A lane is used, or something else has changed.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.is_known.set(false);
    }

    /// Takes the first notification, or says whether a poll may be due.
    #[inline(always)]
    pub(crate) fn look(&self) -> Seen {
        if !self.is_known.get() {
            return Seen::Unknown;
        }
        let places = self.places.borrow();
        for inbox in &places.inboxes {
            match inbox.take() {
                Ok(None) => {}
                Ok(Some(notification)) => return Seen::Notified(notification),
                // The lane finds the violation, too.
                Err(_) => return self.lose(),
            }
        }
        // After the inboxes, whose notifications are older.
        for word in &places.words {
            if word.memory.load(word.at, Ordering::Relaxed) != word.seen {
                return self.lose();
            }
        }
        Seen::Nothing
    }

    #[cold]
    fn lose(&self) -> Seen {
        self.forget();
        Seen::Unknown
    }

    /// Notes the places that `watch` hands over, as [`Lane::watch`](transport_api::Lane::watch) of each
    /// lane does. They count from now on if it returns that these are all and there was nothing.
    #[cold]
    pub(crate) fn note(&self, watch: impl FnOnce(&mut dyn FnMut(Watch)) -> bool) {
        let Places { inboxes, words } = &mut *self.places.borrow_mut();
        let (mut inbox_count, mut word_count) = (0, 0);
        let is_all = watch(&mut |watch| match watch {
            Watch::Inbox(inbox) => {
                // The usual case, which copies no reference.
                let is_there = inboxes.get(inbox_count).is_some_and(|old| old.is_same(inbox));
                if !is_there {
                    inboxes.truncate(inbox_count);
                    inboxes.push(inbox.clone());
                }
                inbox_count += 1;
            }
            Watch::Word(memory, at) => {
                let is_same = |word: &Word| word.at == at && word.memory.begins_at(0, memory);
                if words[..word_count].iter().any(is_same) {
                    return;
                }
                let seen = memory.load(at, Ordering::Relaxed);
                match words.get_mut(word_count) {
                    Some(word) if is_same(word) => word.seen = seen,
                    _ => {
                        words.truncate(word_count);
                        words.push(Word { memory: memory.clone(), at, seen });
                    }
                }
                word_count += 1;
            }
        });
        inboxes.truncate(inbox_count);
        words.truncate(word_count);
        self.is_known.set(is_all);
    }
}

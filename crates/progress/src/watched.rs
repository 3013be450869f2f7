//! [`Watched`]: the words of shared memory that tell a thread whether any of its lanes has anything.
//!
//! A thread that waits for a notification looks at them, in place of a call of each lane. They are
//! noted while there is nothing, and count until one of them changes or a lane is used.

use std::cell::{Cell, RefCell};

use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::HostId;

/// A word that a lane looks at.
struct Word {
    memory: SharedBytes,
    at: usize,
    /// What was in it when it was noted.
    seen: u64,
    /// A host whose lane looks at it.
    host: HostId,
}

/// What [`Watched::look`] has found.
pub(crate) enum Seen {
    /// The words are not known.
    Unknown,
    /// None has changed.
    Same,
    /// A word has changed, of the lane to this host and perhaps others.
    Changed(HostId),
}

/// The words at which the lanes of a thread look.
#[derive(Default)]
pub(crate) struct Watched {
    words: RefCell<Vec<Word>>,
    is_known: Cell<bool>,
}

impl Watched {
    /// A lane is used, or something else has changed.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.is_known.set(false);
    }

    /// Whether any of the words has changed.
    #[inline(always)]
    pub(crate) fn look(&self) -> Seen {
        if !self.is_known.get() {
            return Seen::Unknown;
        }
        for word in self.words.borrow().iter() {
            if word.memory.load(word.at, Ordering::Relaxed) != word.seen {
                return Seen::Changed(word.host);
            }
        }
        Seen::Same
    }

    /// Notes the words that `watch` hands over, as [`Lane::watch`](transport_api::Lane::watch) of each
    /// lane does; whether these are all. What changes after that is seen; so look at the lanes
    /// themselves once more, then call [`begin`](Self::begin).
    #[cold]
    pub(crate) fn note(
        &self,
        watch: impl FnOnce(&mut dyn FnMut(HostId, &SharedBytes, usize)) -> bool,
    ) -> bool {
        let mut words = self.words.borrow_mut();
        let mut count = 0;
        let is_all = watch(&mut |host, memory, at| {
            let is_same = |word: &Word| word.at == at && word.memory.begins_at(0, memory);
            if words[..count].iter().any(is_same) {
                return;
            }
            let seen = memory.load(at, Ordering::Relaxed);
            match words.get_mut(count) {
                // The usual case, which copies no reference.
                Some(word)
                    if word.memory.begins_at(0, memory) && word.memory.len() == memory.len() =>
                {
                    (word.at, word.seen, word.host) = (at, seen, host);
                }
                other => {
                    let new = Word { memory: memory.clone(), at, seen, host };
                    match other {
                        Some(word) => *word = new,
                        None => words.push(new),
                    }
                }
            }
            count += 1;
        });
        words.truncate(count);
        is_all
    }

    /// Nothing was found since the words were noted: they tell from now on.
    pub(crate) fn begin(&self) {
        self.is_known.set(true);
    }
}

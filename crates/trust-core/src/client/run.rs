//! [`Run`]: the run of requests that an outbox adds to (`runs.rs`), and [`Site`], which names what its
//! requests have in common.

use std::cell::Cell;
use std::num::NonZero;

use crate::client::completion::Completion;
use crate::client::completion_list::{Kind, OpenEntry, kind_of};
use crate::closure::registry::{Delegated, closure_id};
use crate::wire::words::{RequestHead, RunLayout};

/// What requests of a run have in common, beside the property: the closure, and what is done with replies.
/// It is known by its address. Two of one address are equal, and so are what they lead to.
#[repr(align(8))]
pub(super) struct Site {
    #[expect(dead_code, reason = "tells it from the sites of other closures")]
    closure: fn() -> u32,
    pub(super) kind: &'static Kind,
}

/// The site of calls of kind `D` with completions of type `C`.
pub(super) const fn site_of<D: Delegated, C: Completion>() -> &'static Site {
    const { &Site { closure: closure_id::<D>, kind: kind_of::<C>() } }
}

impl Site {
    #[inline(always)]
    pub(super) fn address(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The name of no property, and not what a trust has that has sent nothing.
const NONE: u64 = NO_TOKEN << 32;
/// The upper half of names of no outbox.
pub(crate) const NO_TOKEN: u64 = u32::MAX as u64;
/// Set in the address of a site whose run is not open.
pub(super) const CLOSED: usize = 1;

/// The run that is being added to, or the request before, which the next may begin a run with.
pub(super) struct Run {
    /// The name of its property.
    pub(super) name: Cell<u64>,
    /// The address of its site; with [`CLOSED`], if no run is open.
    pub(super) site: Cell<usize>,
    /// The word that its requests have in common, if they have one; otherwise that of the last that had.
    pub(super) word: Cell<u64>,
    /// The key of that word; 0 if it has none.
    key: Cell<usize>,
    /// The head of a request of it, as it is outside of runs.
    pub(super) head: Cell<RequestHead>,
    /// The first word of its first request.
    pub(super) first: Cell<usize>,
    /// How its requests lie.
    pub(super) layout: Cell<RunLayout>,
    /// Where its completions are.
    pub(super) entry: Cell<OpenEntry>,
}

impl Run {
    pub(super) fn new() -> Run {
        Run {
            name: Cell::new(NONE),
            site: Cell::new(CLOSED),
            word: Cell::new(0),
            key: Cell::new(0),
            head: Cell::new(RequestHead::from_word(0)),
            first: Cell::new(0),
            layout: Cell::new(RunLayout::WORD),
            entry: Cell::new(OpenEntry::NONE),
        }
    }

    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.site.get() & CLOSED == 0
    }

    /// Whether a request of this property and with this word in common, if it has one, may be one of the run,
    /// as far as that is not said by its site.
    #[inline(always)]
    pub(super) fn is_of(&self, name: u64, common: Option<u64>) -> bool {
        self.name.get() == name && common.is_none_or(|word| self.word.get() == word)
    }

    /// The word that requests have lately had in common, if this is its key.
    #[inline(always)]
    pub(super) fn word_of_key(&self, key: NonZero<usize>) -> Option<u64> {
        (self.key.get() == key.get()).then(|| self.word.get())
    }

    /// Notes a word and its key.
    #[inline(always)]
    pub(super) fn note_word(&self, word: u64, key: Option<NonZero<usize>>) {
        self.word.set(word);
        self.key.set(key.map_or(0, NonZero::get));
    }

    /// From now on the word has no key.
    #[inline(always)]
    pub(super) fn forget_key(&self) {
        self.key.set(0);
    }

    /// Forgets what the next request may begin a run with, while none is open.
    pub(super) fn forget(&self) {
        self.name.set(NONE);
    }
}

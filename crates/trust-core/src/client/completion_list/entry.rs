//! Entries of the list of completions: what they look like in its words, and the [`Kind`] that each begins
//! with.

use primitive::SharedBytes;
use primitive::limits::BATCH_REQUESTS;
use transport_api::ThreadId;

use super::Completions;
use super::taking::{no_place, no_place_alone, run, run_one, take, waiter_of};
use crate::client::completion::Completion;
use crate::client::outcome::Outcome;
use crate::closure::context::CallbackName;
use crate::wire::words::{RunLayout, WORD};

/// The operations on a completion's type.
pub(crate) struct Kind {
    pub(super) take: Take,
    pub(super) run: Run,
    pub(super) run_one: RunOne,
    pub(super) waiter: WaiterOf,
    /// Words of an entry with one of them.
    pub(super) words: usize,
    /// Words of each of them.
    pub(super) own_words: usize,
    /// How many entries with one a list of [`LIST_WORDS`] has room for.
    pub(super) most: usize,
    /// How requests with such completions lie in runs.
    pub(crate) layout: RunLayout,
    /// Its name in messages.
    pub(crate) name: CallbackName,
}

/// The kind of completions of type `C`.
pub(crate) const fn kind_of<C: Completion>() -> &'static Kind {
    const {
        &Kind {
            take: take::<C>,
            run: if C::IN_PLACE { run::<C> } else { no_place },
            run_one: if C::IN_PLACE { run_one::<C> } else { no_place_alone },
            waiter: waiter_of::<C>,
            words: words_of::<C>(),
            own_words: own_words_of::<C>(),
            most: LIST_WORDS / words_of::<C>(),
            layout: C::RUN,
            name: C::name,
        }
    }
}

/// Moves a completion out of the words that these are, and runs it.
pub(super) type Take = unsafe fn(*const u64, Outcome<'_>);

/// The waiter of the completion in the words that these are.
pub(super) type WaiterOf = unsafe fn(*const u64) -> *const ();

/// Takes the completions at the head of a list that are of the kind given, and runs them with the
/// results in their requests' places. A type may have several kinds, one for each unit of code that
/// pushes it, so it is the list's own that is compared with.
pub(super) type Run = unsafe fn(&Kind, &Completions, &SharedBytes, ThreadId);

/// Moves a completion out of the words that these are, after its header, and runs it with the result in
/// the place of its request.
pub(super) type RunOne = unsafe fn(*const u64, &SharedBytes, ThreadId);

pub(super) const HEADER: usize = 2;

/// Words of an entry with one of the smallest completions.
pub(super) const SMALL_WORDS: usize = HEADER + 1;

/// Words of each completion in its entry.
pub(super) const fn own_words_of<C>() -> usize {
    size_of::<C>().div_ceil(WORD)
}

/// Words of an entry with one completion. Those without bytes have one as well, so that a list for so
/// many small ones never holds more.
pub(super) const fn words_of<C>() -> usize {
    let words = own_words_of::<C>();
    if words == 0 { SMALL_WORDS } else { HEADER + words }
}

/// Words of a list that has just got its first: enough for a batch in mapped memory.
pub(super) const LIST_WORDS: usize = BATCH_REQUESTS * SMALL_WORDS;

pub(crate) const fn is_kept_apart<C>() -> bool {
    align_of::<C>() > WORD || words_of::<C>() > LIST_WORDS / 2
}

/// The second word of an entry. In parts, because each is a store by itself: one number made of all would
/// cost a request three instructions more.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Header {
    /// The word at which the first request is: its head, or in a run the first of its own.
    at: u32,
    /// Words after that, of each.
    request_words: u16,
    /// How many requests, in a run; 0 where there is one with its own head.
    pub(super) run: u16,
}

impl Header {
    #[cfg_attr(optimised, inline(always))]
    pub(super) fn new(at: usize, request_words: usize) -> Self {
        debug_assert!(u32::try_from(at).is_ok() && request_words <= 0xffff);
        Header { at: at as u32, request_words: request_words as u16, run: 0 }
    }

    #[cfg_attr(optimised, inline(always))]
    pub(super) fn of_run(at: usize, layout: RunLayout, requests: usize) -> Self {
        debug_assert!(requests > 0);
        Header { run: requests as u16, ..Header::new(at, layout.words() - 1) }
    }

    /// Completions of the entry.
    #[cfg_attr(optimised, inline(always))]
    pub(super) fn requests(self) -> usize {
        usize::from(self.run).max(1)
    }

    #[cfg_attr(optimised, inline(always))]
    pub(super) fn at(self) -> usize {
        self.at as usize
    }

    #[cfg_attr(optimised, inline(always))]
    pub(super) fn request_words(self) -> usize {
        usize::from(self.request_words)
    }

    /// The word at which the head of these requests is, which lie so in runs.
    pub(super) fn head(self, layout: RunLayout) -> usize {
        self.at() - if self.run > 0 { 1 + layout.common_words() } else { 0 }
    }
}

/// An entry for a run whose completions are being [added](Self::push).
#[derive(Clone, Copy)]
pub(crate) struct OpenEntry {
    /// Address of the own words of request 0's completion, if requests were counted from word 0: the number
    /// of a request is its first word divided by the words of one.
    pub(super) origin: *mut u64,
    /// Where the entry begins.
    pub(super) place: usize,
}

impl OpenEntry {
    /// None at all.
    pub(crate) const NONE: OpenEntry = OpenEntry { origin: std::ptr::null_mut(), place: 0 };

    /// Adds the completion of the request at word `at`.
    ///
    /// # Safety
    /// The entry is [open](Completions::open_entry) in its list, for completions of type `C`. `at` is the
    /// first word of one of the requests from that on for which it was opened, as many as it is for at most.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) unsafe fn push<C: Completion>(self, at: usize, completion: C) {
        let request = at / const { C::RUN.words() };
        let to = self.origin.wrapping_add(request * const { own_words_of::<C>() });
        // SAFETY: the entry has room for the own words of so many completions, one after the other, and
        // these are the ones that belong to the request at `at`. Nothing that counts is there: no entry is
        // after one that is open. The last partial word need not be initialised, as in `push` of a list.
        unsafe { to.cast::<C>().write(completion) };
    }
}

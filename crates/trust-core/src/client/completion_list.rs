//! The list of completions: the work a client does when a reply comes, in the order of the
//! requests.
//!
//! Every request in flight has one. A completion is any value that implements [`Completion`]; it is
//! moved into a vector of words next to the function that takes it out again, so that a request
//! costs no allocation. Those of a run of requests, which are of one kind, share an *entry*:
//!
//! ```text
//!   | kind | request, words, run | the completion's bytes .. | the next one's .. | kind | request, .. |
//!     &Kind    ^ where it is, how long it is, of how many the run is
//! ```
//!
//! An entry takes the room that as many entries of one take, so that where the list ends says how
//! many completions there are.
//!
//! Most replies are results in their requests' places, and most completions are followed by others
//! of their kind: all of these cost one indirect call. One that is not takes a shorter function,
//! which prepares no loop.

mod entry;
mod taking;
#[cfg(test)]
mod tests;

use std::cell::{Cell, UnsafeCell};

use primitive::SharedBytes;
use primitive::limits::BATCH_REQUESTS;
use transport_api::ThreadId;

use self::entry::{HEADER, Header, LIST_WORDS, SMALL_WORDS, words_of};
pub(crate) use self::entry::{Kind, OpenEntry, is_kept_apart, kind_of};
use crate::client::completion::{Completion, boxed};
use crate::client::outcome::{InPlace, Outcome};
use crate::error::RACK_ENDED;

/// Completions of one batch, in order.
///
/// Everything takes `&self`: completions run while they are listed here, and what they do may, by a
/// detour, look at this list. No reference into the words outlives a method, and a completion is
/// moved out before it runs.
pub(crate) struct Completions {
    /// Room for completions; those after `end` mean nothing.
    words: UnsafeCell<Vec<u64>>,
    /// The first entry of which not all have been taken.
    next: Cell<usize>,
    /// How many of it have been.
    taken: Cell<usize>,
    /// The first word after all completions.
    end: Cell<usize>,
    /// Words that they have beyond those of small ones.
    surplus: Cell<usize>,
    /// Words that there may be.
    most: usize,
}

/// A completion that is about to run.
pub(crate) struct Next {
    pub(crate) kind: &'static Kind,
    /// The word at which its request's head was.
    pub(crate) at: usize,
    /// Words after the head that belong to the request.
    request_words: usize,
    /// Where its own words are.
    data: *const u64,
    /// Its entry, and how many are in front of it there.
    place: (usize, usize),
}

/// Where a completion finds room in a list, of which it is the next one.
pub(crate) struct Room {
    place: usize,
    end: usize,
}

/// A completion that is too large or too aligned for a list; the pointer to it is in the list.
type Apart = Box<dyn FnOnce(Outcome<'_>)>;

impl Default for Completions {
    /// A list for a batch in mapped memory.
    fn default() -> Self {
        Self::new(BATCH_REQUESTS)
    }
}

impl Completions {
    /// A list with room for this many small completions; larger ones leave room for fewer.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            words: UnsafeCell::default(),
            next: Cell::new(0),
            taken: Cell::new(0),
            end: Cell::new(0),
            surplus: Cell::new(0),
            most: most * SMALL_WORDS,
        }
    }

    /// Room for one more completion, if there is any. There is in an empty list.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn room<C: Completion>(&self) -> Option<Room> {
        let words =
            const { if is_kept_apart::<C>() { words_of::<Apart>() } else { words_of::<C>() } };
        let place = self.end.get();
        let end = place + words;
        // SAFETY: no other reference to the vector exists: this method calls nothing that could
        // come back here, and the type is not Sync.
        let list = unsafe { &mut *self.words.get() };
        if end > list.len() && !grow(list, end, self.most) {
            return None;
        }
        Some(Room { place, end })
    }

    /// Adds the completion of the request whose head is at word `at`, with `request_words` after
    /// it, where there is [room](Self::room) for it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn push<C: Completion + 'static>(
        &self,
        room: Room,
        at: usize,
        request_words: usize,
        completion: C,
    ) {
        if const { is_kept_apart::<C>() } {
            return self.push(room, at, request_words, boxed(completion));
        }
        let header = Header::new(at, request_words);
        // SAFETY: the kind is the one for which there is room, and the completion is written at once. Its last
        // partial word need not be initialised because it is only ever read as a `C`.
        unsafe { self.push_entry(room, kind_of::<C>(), header).cast::<C>().write(completion) };
    }

    /// Adds an entry for one completion, and returns where its own words belong.
    ///
    /// # Safety
    /// The room was found for this kind. The caller writes a completion of it there before it does anything
    /// else.
    #[cfg_attr(optimised, inline(always))]
    unsafe fn push_entry(&self, room: Room, kind: &'static Kind, header: Header) -> *mut u64 {
        let Room { place, end } = room;
        debug_assert!(place == self.end.get() && end == place + kind.words);
        // SAFETY: the list has words up to `end`, as `room` found, and nothing that counts is
        // after `place`.
        let own = unsafe {
            let first = (*self.words.get()).as_mut_ptr().add(place);
            first.cast::<&Kind>().write(kind);
            first.add(1).cast::<Header>().write(header);
            first.add(HEADER)
        };
        if kind.words > SMALL_WORDS {
            self.surplus.set(self.surplus.get() + (kind.words - SMALL_WORDS));
        }
        self.end.set(end);
        own
    }

    /// Opens an entry for a run of requests whose completions are of this kind, of which the first is at
    /// word `at`, and says of how many it may be; `None` if there is no room for one. Until it is
    /// [closed](Self::close_entry), nothing else is added to the list.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn open_entry(&self, kind: &'static Kind, at: usize) -> Option<(OpenEntry, usize)> {
        let (place, words) = (self.end.get(), kind.words);
        // SAFETY: as in `room`.
        let list = unsafe { &mut *self.words.get() };
        if place + words > list.len() && !grow(list, place + words, self.most) {
            return None;
        }
        let room = list.len() - place;
        // An empty list of a batch in mapped memory needs no division.
        let most = if room == LIST_WORDS { kind.most } else { room / words };
        // SAFETY: as in `push_entry`: the list has words for `most` entries of one, and so for the header.
        let own = unsafe {
            let first = list.as_mut_ptr().add(place);
            first.cast::<&Kind>().write(kind);
            first.add(HEADER)
        };
        let origin = own.wrapping_sub(kind.layout.requests_in(at) * kind.own_words);
        Some((OpenEntry { origin, place }, most))
    }

    /// Closes an entry, to which the completions have been added of `requests` that begin at word `at`.
    ///
    /// # Safety
    /// The entry is open. It was opened for a run from `at` on, and as many completions have been added,
    /// one for each of its requests.
    pub(crate) unsafe fn close_entry(&self, entry: OpenEntry, at: usize, requests: usize) {
        debug_assert!(entry.place == self.end.get() && requests > 0);
        // SAFETY: as in `push_entry`; `open_entry` has written the kind.
        let words = unsafe {
            let first = (*self.words.get()).as_mut_ptr().add(entry.place);
            let kind = first.cast::<&Kind>().read();
            first.add(1).cast::<Header>().write(Header::of_run(at, kind.layout, requests));
            kind.words
        };
        self.surplus.set(self.surplus.get() + requests * (words - SMALL_WORDS));
        self.end.set(entry.place + requests * words);
    }

    /// How many completions there are, with those that have been taken.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn count(&self) -> usize {
        (self.end.get() - self.surplus.get()) / SMALL_WORDS
    }

    /// How many completions have not been taken.
    pub(crate) fn len(&self) -> usize {
        let (mut place, mut len) = (self.next.get(), 0);
        while let Some((kind, header, _)) = self.at(place) {
            place += kind.words * header.requests();
            len += header.requests();
        }
        len - self.taken.get()
    }

    /// The word at which the head of the request is whose reply ends `waiter`.
    pub(crate) fn request_of(&self, waiter: *const ()) -> Option<usize> {
        let (mut place, mut taken) = self.place();
        while let Some((kind, header, data)) = self.at(place) {
            let waits = |index: usize| {
                // SAFETY: the kind was pushed with the completions that `data` points to, of which this
                // has not been taken: it is not in front of `next` and `taken`.
                (unsafe { (kind.waiter)(data.add(index * kind.own_words)) }) == waiter
            };
            if (taken..header.requests()).any(waits) {
                return Some(header.head(kind.layout));
            }
            (place, taken) = (place + kind.words * header.requests(), 0);
        }
        None
    }

    /// Where the next completion is: its entry, and how many are in front of it there.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.next.get(), self.taken.get())
    }

    /// The entry at `place`: its kind, its header, its first completion. `None` past the last one.
    #[cfg_attr(optimised, inline(always))]
    fn at(&self, place: usize) -> Option<(&'static Kind, Header, *const u64)> {
        // SAFETY: in front of the end, where an entry begins: only what `push` and the steps over
        // whole entries make it is ever asked for.
        (place < self.end.get()).then(|| unsafe { self.entry(place) })
    }

    /// As [`at`](Self::at).
    ///
    /// # Safety
    /// An entry begins there, in front of `end`.
    #[cfg_attr(optimised, inline(always))]
    unsafe fn entry(&self, place: usize) -> (&'static Kind, Header, *const u64) {
        // SAFETY: as in `push_entry`. In front of `end` are entries, one after the other, each with a
        // word made from a `&Kind`, and a header.
        unsafe {
            let first = (*self.words.get()).as_ptr().add(place);
            let header = first.add(1).cast::<Header>().read();
            (first.cast::<&Kind>().read(), header, first.add(HEADER))
        }
    }

    /// Takes the next completion out.
    pub(crate) fn next(&self) -> Option<Next> {
        let (place, taken) = self.place();
        let (kind, header, data) = self.at(place)?;
        if taken + 1 < header.requests() {
            self.taken.set(taken + 1);
        } else {
            self.taken.set(0);
            self.next.set(place + kind.words * header.requests());
        }
        let data = data.wrapping_add(taken * kind.own_words);
        let request_words = header.request_words();
        let at = header.at() + taken * (1 + request_words);
        Some(Next { kind, at, request_words, data, place: (place, taken) })
    }

    /// Undoes the [`next`](Self::next) that took this completion.
    pub(crate) fn put_back(&self, next: Next) {
        debug_assert!(next.place < self.place());
        self.next.set(next.place.0);
        self.taken.set(next.place.1);
    }

    /// Runs a completion.
    ///
    /// # Panics
    /// If it panics; it counts as taken then.
    #[inline]
    pub(crate) fn run(&self, next: Next, outcome: Outcome<'_>) {
        // SAFETY: `next` came from this list, whose words after the header are a completion of the
        // type that its kind was made for (`push` writes them together), and nothing was pushed
        // since. It is taken once, because a `Next` is used up here. `take` moves it out before it
        // runs, so that it does not matter if the list grows meanwhile.
        unsafe { (next.kind.take)(next.data, outcome) }
    }

    /// Runs a completion whose result is in the place of its request.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub(crate) fn run_in_place(&self, next: Next, pair: &SharedBytes, trustee: ThreadId) {
        let place = InPlace::of((next.at, next.request_words), pair, trustee);
        self.run(next, Outcome::InPlace(place));
    }

    /// Takes the next completions of one kind, which `note` is told, and runs them, with the results that
    /// are in the places of their requests in the memory of `pair`. Returns when one of another kind, or
    /// a run, is next; false if there was none.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn run_next(
        &self,
        note: impl FnOnce(&'static Kind),
        pair: &SharedBytes,
        trustee: ThreadId,
    ) -> bool {
        let place = self.next.get();
        let Some((kind, header, data)) = self.at(place) else { return false };
        note(kind);
        let behind = place + kind.words;
        let is_followed = || self.at(behind).is_some_and(|(next, ..)| std::ptr::eq(next, kind));
        if header.run > 0 || is_followed() {
            // SAFETY: `run` and the kind were made for the same type (`kind_of`).
            unsafe { (kind.run)(kind, self, pair, trustee) }
        } else {
            self.next.set(behind);
            // SAFETY: `data` are the words of a completion of the type that this kind was made for, as in
            // `run`, alone in its entry. It is taken once: `next` is after it.
            unsafe { (kind.run_one)(data, pair, trustee) }
        }
        true
    }

    /// Moves the completions of this list, none of which has been taken, to `empty`, which has none and
    /// room for as many.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn move_to(&self, empty: &Completions) {
        debug_assert!(self.most == empty.most && self.place() == (0, 0));
        debug_assert_eq!((empty.place(), empty.end.get(), empty.surplus.get()), ((0, 0), 0, 0));
        // SAFETY: as in `room`; the two vectors are swapped whole, and may be the same.
        unsafe { std::ptr::swap(self.words.get(), empty.words.get()) };
        empty.end.set(self.end.replace(0));
        empty.surplus.set(self.surplus.replace(0));
    }

    /// Exchanges the completions of two lists, which have room for as many.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn swap(&self, other: &Completions) {
        debug_assert_eq!(self.most, other.most);
        // SAFETY: as in `room`; the two are swapped whole, and may be the same.
        unsafe { std::ptr::swap(self.words.get(), other.words.get()) };
        self.next.swap(&other.next);
        self.taken.swap(&other.taken);
        self.end.swap(&other.end);
        self.surplus.swap(&other.surplus);
    }

    /// Forgets the completions, all of which have been taken.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn clear(&self) {
        debug_assert!(self.next().is_none());
        self.next.set(0);
        self.taken.set(0);
        self.end.set(0);
        self.surplus.set(0);
    }
}

/// Gives a list more words, up to `most`; says whether it has `end` of them.
#[cold]
#[inline(never)]
fn grow(list: &mut Vec<u64>, end: usize, most: usize) -> bool {
    if list.len() < most {
        list.resize((2 * list.len()).max(LIST_WORDS).min(most), 0);
    }
    end <= list.len()
}

impl Drop for Completions {
    fn drop(&mut self) {
        while let Some(next) = self.next() {
            self.run(next, Outcome::Failed(&RACK_ENDED));
        }
    }
}

//! The list of completions: the work a client does when a reply comes, in the order of the
//! requests.
//!
//! Every request in flight has one. A completion is any value that implements [`Completion`]; it is
//! moved into a vector of words next to the function that takes it out again, so that a request
//! costs no allocation:
//!
//! ```text
//!   | kind | request, words | the completion's bytes .. | kind | request, words | .. |
//!     &Kind    ^ where its head is, and how long it is
//! ```
//!
//! Most replies are results in their requests' places, and most completions are followed by others
//! of their kind: a run of these costs one indirect call. One that is not takes a shorter function,
//! which prepares no loop.

use std::cell::{Cell, UnsafeCell};

use primitive::SharedBytes;
use primitive::limits::BATCH_REQUESTS;
use transport_api::ThreadId;

use crate::client::completion::{Completion, boxed};
use crate::client::outcome::{InPlace, Outcome};
use crate::closure::context::CallbackName;
use crate::error::RACK_ENDED;
use crate::wire::words::WORD;

/// The operations on a completion's type.
pub(crate) struct Kind {
    take: Take,
    run: Run,
    run_one: RunOne,
    waiter: WaiterOf,
    /// Words of one in a list.
    words: usize,
    /// Its name in messages.
    pub(crate) name: CallbackName,
}

/// The kind of completions of type `C`.
pub(crate) const fn kind_of<C: Completion>() -> &'static Kind {
    const {
        &Kind {
            take: take::<C>,
            run: run::<C>,
            run_one: run_one::<C>,
            waiter: waiter_of::<C>,
            words: words_of::<C>(),
            name: C::name,
        }
    }
}

/// Moves a completion out of the words that these are, and runs it.
type Take = unsafe fn(*const u64, Outcome<'_>);

/// The waiter of the completion in the words that these are.
type WaiterOf = unsafe fn(*const u64) -> *const ();

/// Takes the completions at the head of a list that are of the kind given, and runs them with the
/// results in their requests' places. A type may have several kinds, one for each unit of code that
/// pushes it, so it is the list's own that is compared with.
type Run = unsafe fn(&Kind, &Completions, &SharedBytes, ThreadId);

/// Moves a completion out of the words that these are, and runs it with the result in the place of its
/// request.
type RunOne = unsafe fn(*const u64, Header, &SharedBytes, ThreadId);

/// Completions of one batch, in order.
///
/// Everything takes `&self`: completions run while they are listed here, and what they do may, by a
/// detour, look at this list. No reference into the words outlives a method, and a completion is
/// moved out before it runs.
pub(crate) struct Completions {
    /// Room for completions; those behind `end` mean nothing.
    words: UnsafeCell<Vec<u64>>,
    /// The first completion that has not been taken.
    next: Cell<usize>,
    /// The first word behind all completions.
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
    /// Words behind the head that belong to the request.
    request_words: usize,
    /// Where its own words are.
    data: *const u64,
    /// Where it is in the list.
    place: usize,
}

const HEADER: usize = 2;

/// Words of the smallest completions in a list.
const SMALL_WORDS: usize = HEADER + 1;

/// Words of a completion in a list. Those without bytes have one as well, so that a list for so
/// many small ones never holds more.
const fn words_of<C>() -> usize {
    let words = size_of::<C>().div_ceil(WORD);
    if words == 0 { SMALL_WORDS } else { HEADER + words }
}

/// Words of a list that has just got its first: enough for a batch in mapped memory.
const LIST_WORDS: usize = BATCH_REQUESTS * SMALL_WORDS;

/// Where a completion finds room in a list, of which it is the next one.
pub(crate) struct Room {
    place: usize,
    end: usize,
}

/// A completion that is too large or too aligned for a list; the pointer to it is in the list.
type Apart = Box<dyn FnOnce(Outcome<'_>)>;

const fn is_kept_apart<C>() -> bool {
    align_of::<C>() > WORD || words_of::<C>() > LIST_WORDS / 2
}

/// The second word of a completion in a list. In two halves, because each is a store by itself: one
/// number made of both would cost a request three instructions more.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Header {
    /// The word at which its request's head is.
    at: u32,
    /// Words behind the head.
    request_words: u32,
}

impl Header {
    #[cfg_attr(optimised, inline(always))]
    fn new(at: usize, request_words: usize) -> Self {
        debug_assert!(u32::try_from(at).is_ok() && request_words <= 0xffff);
        Header { at: at as u32, request_words: request_words as u32 }
    }

    #[cfg_attr(optimised, inline(always))]
    fn at(self) -> usize {
        self.at as usize
    }

    #[cfg_attr(optimised, inline(always))]
    fn request_words(self) -> usize {
        self.request_words as usize
    }
}

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

    /// Adds the completion of the request whose head is at word `at`, with `request_words` behind
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
        let Room { place, end } = room;
        debug_assert!(place == self.end.get() && end == place + words_of::<C>());
        let header = Header::new(at, request_words);
        // SAFETY: the list has words up to `end`, as `room` found, and nothing that counts is
        // behind `place`. A completion's last partial word need not be initialised because it is
        // only ever read as a `C`.
        unsafe {
            let first = (*self.words.get()).as_mut_ptr().add(place);
            first.cast::<&Kind>().write(kind_of::<C>());
            first.add(1).cast::<Header>().write(header);
            first.add(HEADER).cast::<C>().write(completion);
        }
        if const { words_of::<C>() > SMALL_WORDS } {
            self.surplus.set(self.surplus.get() + const { words_of::<C>() - SMALL_WORDS });
        }
        self.end.set(end);
    }

    /// How many completions there are, with those that have been taken.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn count(&self) -> usize {
        (self.end.get() - self.surplus.get()) / SMALL_WORDS
    }

    /// How many completions have not been taken.
    pub(crate) fn len(&self) -> usize {
        let (mut place, mut len) = (self.next.get(), 0);
        while let Some((kind, ..)) = self.at(place) {
            place += kind.words;
            len += 1;
        }
        len
    }

    /// The word at which the head of the request is whose reply ends `waiter`.
    pub(crate) fn request_of(&self, waiter: *const ()) -> Option<usize> {
        let mut place = self.next.get();
        while let Some((kind, header, data)) = self.at(place) {
            // SAFETY: the kind was pushed with the completion that `data` points to, which has not
            // been taken: it is not in front of `next`.
            if unsafe { (kind.waiter)(data) } == waiter {
                return Some(header.at());
            }
            place += kind.words;
        }
        None
    }

    /// Where the next completion is.
    pub(crate) fn place(&self) -> usize {
        self.next.get()
    }

    /// The completion at `place`, if it is not behind the last: its kind, its header, its bytes.
    #[cfg_attr(optimised, inline(always))]
    fn at(&self, place: usize) -> Option<(&'static Kind, Header, *const u64)> {
        // SAFETY: in front of the end, where a completion begins: only what `push` and the steps over
        // whole completions make it is ever asked for.
        (place < self.end.get()).then(|| unsafe { self.entry(place) })
    }

    /// As [`at`](Self::at).
    ///
    /// # Safety
    /// A completion begins there, in front of `end`.
    #[cfg_attr(optimised, inline(always))]
    unsafe fn entry(&self, place: usize) -> (&'static Kind, Header, *const u64) {
        // SAFETY: as in `push`. In front of `end` are completions, one behind the other, each with a
        // word made from a `&Kind`, and a header.
        unsafe {
            let first = (*self.words.get()).as_ptr().add(place);
            let header = first.add(1).cast::<Header>().read();
            (first.cast::<&Kind>().read(), header, first.add(HEADER))
        }
    }

    /// Takes the next completion out.
    pub(crate) fn next(&self) -> Option<Next> {
        let place = self.next.get();
        let (kind, header, data) = self.at(place)?;
        self.next.set(place + kind.words);
        Some(Next { kind, at: header.at(), request_words: header.request_words(), data, place })
    }

    /// Undoes the [`next`](Self::next) that took this completion.
    pub(crate) fn put_back(&self, next: Next) {
        debug_assert!(next.place < self.next.get());
        self.next.set(next.place);
    }

    /// Runs a completion.
    ///
    /// # Panics
    /// If it panics; it counts as taken then.
    #[inline]
    pub(crate) fn run(&self, next: Next, outcome: Outcome<'_>) {
        // SAFETY: `next` came from this list, whose words behind the header are a completion of the
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
    /// are in the places of their requests in the memory of `pair`. Returns when one of another kind is
    /// next; false if there was none.
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
        let behind = place + kind.words;
        let is_followed = self.at(behind).is_some_and(|(next, ..)| std::ptr::eq(next, kind));
        note(kind);
        if is_followed {
            // SAFETY: `run` and the kind were made for the same type (`kind_of`).
            unsafe { (kind.run)(kind, self, pair, trustee) }
        } else {
            self.next.set(behind);
            // SAFETY: `data` are the words of a completion of the type that this kind was made for, as in
            // `run`. It is taken once: `next` is behind it.
            unsafe { (kind.run_one)(data, header, pair, trustee) }
        }
        true
    }

    /// Moves the completions of this list, none of which has been taken, to `empty`, which has none and
    /// room for as many.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn move_to(&self, empty: &Completions) {
        debug_assert!(self.most == empty.most && self.next.get() == 0);
        debug_assert_eq!((empty.next.get(), empty.end.get(), empty.surplus.get()), (0, 0, 0));
        // SAFETY: as in `push`; the two vectors are swapped whole, and may be the same.
        unsafe { std::ptr::swap(self.words.get(), empty.words.get()) };
        empty.end.set(self.end.replace(0));
        empty.surplus.set(self.surplus.replace(0));
    }

    /// Exchanges the completions of two lists, which have room for as many.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn swap(&self, other: &Completions) {
        debug_assert_eq!(self.most, other.most);
        // SAFETY: as in `push`; the two are swapped whole, and may be the same.
        unsafe { std::ptr::swap(self.words.get(), other.words.get()) };
        self.next.swap(&other.next);
        self.end.swap(&other.end);
        self.surplus.swap(&other.surplus);
    }

    /// Forgets the completions, all of which have been taken.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn clear(&self) {
        debug_assert!(self.next().is_none());
        self.next.set(0);
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

/// # Safety
/// `data` points to a `C` that is taken here and never again.
unsafe fn take<C: Completion>(data: *const u64, outcome: Outcome<'_>) {
    // SAFETY: the caller's promise.
    let completion = unsafe { data.cast::<C>().read() };
    completion.complete(outcome);
}

/// # Safety
/// `data` points to a `C` that is not taken meanwhile.
unsafe fn waiter_of<C: Completion>(data: *const u64) -> *const () {
    // SAFETY: the caller's promise.
    unsafe { &*data.cast::<C>() }.waiter()
}

/// # Safety
/// As of [`take`].
unsafe fn run_one<C: Completion>(
    data: *const u64,
    header: Header,
    pair: &SharedBytes,
    trustee: ThreadId,
) {
    let place = InPlace::of((header.at(), header.request_words()), pair, trustee);
    // SAFETY: the caller's promise.
    let completion = unsafe { data.cast::<C>().read() };
    completion.complete(Outcome::InPlace(place));
}

/// A run that is being taken. Meanwhile nothing else finds a completion in the list, so that where the
/// run has come to need not be stored for each; it is when this is dropped, also if one panics.
struct Taking<'a> {
    list: &'a Completions,
    place: usize,
    end: usize,
}

impl<'a> Taking<'a> {
    #[cfg_attr(optimised, inline(always))]
    fn new(list: &'a Completions) -> Self {
        let (place, end) = (list.next.get(), list.end.get());
        list.next.set(end);
        Taking { list, place, end }
    }
}

impl Drop for Taking<'_> {
    #[cfg_attr(optimised, inline(always))]
    fn drop(&mut self) {
        debug_assert_eq!(self.list.next.get(), self.end, "other code took completions");
        self.list.next.set(self.place);
    }
}

/// # Safety
/// `kind` is one of `C`s.
unsafe fn run<C: Completion>(
    kind: &Kind,
    list: &Completions,
    pair: &SharedBytes,
    trustee: ThreadId,
) {
    let mut run = Taking::new(list);
    while run.place < run.end {
        // SAFETY: in front of the end, where a completion begins, as for all that `place` comes to.
        let (next, header, data) = unsafe { list.entry(run.place) };
        if !std::ptr::eq(next, kind) {
            break;
        }
        run.place += const { words_of::<C>() };
        let place = InPlace::of((header.at(), header.request_words()), pair, trustee);
        // SAFETY: `push` wrote a `C` behind this kind of `C`s. It is taken once: `place` is behind it,
        // and no other code takes from this list or adds to it while it is being answered.
        let completion = unsafe { data.cast::<C>().read() };
        completion.complete(Outcome::InPlace(place));
    }
}

#[cfg(test)]
mod tests;

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

use std::cell::{Cell, UnsafeCell};

use primitive::limits::BATCH_REQUESTS;
use primitive::{Records, SharedBytes};
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
    /// Words of an entry with one of them.
    words: usize,
    /// Words of each of them.
    own_words: usize,
    /// How many entries with one a list of [`LIST_WORDS`] has room for.
    most: usize,
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
            own_words: own_words_of::<C>(),
            most: LIST_WORDS / words_of::<C>(),
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

/// Moves a completion out of the words that these are, behind its header, and runs it with the result in
/// the place of its request.
type RunOne = unsafe fn(*const u64, &SharedBytes, ThreadId);

/// Completions of one batch, in order.
///
/// Everything takes `&self`: completions run while they are listed here, and what they do may, by a
/// detour, look at this list. No reference into the words outlives a method, and a completion is
/// moved out before it runs.
pub(crate) struct Completions {
    /// Room for completions; those behind `end` mean nothing.
    words: UnsafeCell<Vec<u64>>,
    /// The first entry of which not all have been taken.
    next: Cell<usize>,
    /// How many of it have been.
    taken: Cell<usize>,
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
    /// Its entry, and how many are in front of it there.
    place: (usize, usize),
}

const HEADER: usize = 2;

/// Words of an entry with one of the smallest completions.
const SMALL_WORDS: usize = HEADER + 1;

/// Words of each completion in its entry.
const fn own_words_of<C>() -> usize {
    size_of::<C>().div_ceil(WORD)
}

/// Words of an entry with one completion. Those without bytes have one as well, so that a list for so
/// many small ones never holds more.
const fn words_of<C>() -> usize {
    let words = own_words_of::<C>();
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

pub(crate) const fn is_kept_apart<C>() -> bool {
    align_of::<C>() > WORD || words_of::<C>() > LIST_WORDS / 2
}

/// The second word of an entry. In parts, because each is a store by itself: one number made of all would
/// cost a request three instructions more.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Header {
    /// The word at which the first request is: its head, or in a run its own word.
    at: u32,
    /// Words behind that, of each.
    request_words: u16,
    /// How many requests, in a run; 0 where there is one with its own head.
    run: u16,
}

impl Header {
    #[cfg_attr(optimised, inline(always))]
    fn new(at: usize, request_words: usize) -> Self {
        debug_assert!(u32::try_from(at).is_ok() && request_words <= 0xffff);
        Header { at: at as u32, request_words: request_words as u16, run: 0 }
    }

    #[cfg_attr(optimised, inline(always))]
    fn of_run(at: usize, requests: usize) -> Self {
        debug_assert!(u32::try_from(at).is_ok() && (1..=0xffff).contains(&requests));
        Header { at: at as u32, request_words: 0, run: requests as u16 }
    }

    /// Completions of the entry.
    #[cfg_attr(optimised, inline(always))]
    fn requests(self) -> usize {
        usize::from(self.run).max(1)
    }

    #[cfg_attr(optimised, inline(always))]
    fn at(self) -> usize {
        self.at as usize
    }

    #[cfg_attr(optimised, inline(always))]
    fn request_words(self) -> usize {
        usize::from(self.request_words)
    }

    /// The word at which the head of these requests is.
    fn head(self) -> usize {
        self.at() - usize::from(self.run > 0)
    }
}

/// An entry for a run whose completions are being [added](Self::push).
#[derive(Clone, Copy)]
pub(crate) struct OpenEntry {
    /// Where the own words would be of a completion whose request is at word 0.
    origin: *mut u64,
    /// Where the entry begins.
    place: usize,
}

impl OpenEntry {
    /// None at all.
    pub(crate) const NONE: OpenEntry = OpenEntry { origin: std::ptr::null_mut(), place: 0 };

    /// Adds the completion of the request at word `at`.
    ///
    /// # Safety
    /// The entry is [open](Completions::open_entry) in its list, for completions of type `C`. Since it
    /// was opened, `at` is one of the words from the first request on, as many as the entry is for at most.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) unsafe fn push<C>(self, at: usize, completion: C) {
        let to = self.origin.wrapping_add(at * const { own_words_of::<C>() });
        // SAFETY: the entry has room for the own words of so many completions, one behind the other, and
        // these are the ones that belong to the request at `at`. Nothing that counts is there: no entry is
        // behind one that is open. The last partial word need not be initialised, as in `push` of a list.
        unsafe { to.cast::<C>().write(completion) };
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
        // SAFETY: as in `push`: the list has words for `most` entries of one, and so for the header.
        let own = unsafe {
            let first = list.as_mut_ptr().add(place);
            first.cast::<&Kind>().write(kind);
            first.add(HEADER)
        };
        let origin = own.wrapping_sub(at * kind.own_words);
        Some((OpenEntry { origin, place }, most))
    }

    /// Closes an entry, to which the completions have been added of `requests` that begin at word `at`.
    ///
    /// # Safety
    /// The entry is open. It was opened for a run from `at` on, and as many completions have been added,
    /// one for each of its words.
    pub(crate) unsafe fn close_entry(&self, entry: OpenEntry, at: usize, requests: usize) {
        debug_assert!(entry.place == self.end.get() && requests > 0);
        // SAFETY: as in `push`; `open_entry` has written the kind.
        let words = unsafe {
            let first = (*self.words.get()).as_mut_ptr().add(entry.place);
            first.add(1).cast::<Header>().write(Header::of_run(at, requests));
            first.cast::<&Kind>().read().words
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
                return Some(header.head());
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

    /// The entry at `place`, if it is not behind the last: its kind, its header, its first completion.
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
        // SAFETY: as in `push`. In front of `end` are entries, one behind the other, each with a
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
            // `run`, alone in its entry. It is taken once: `next` is behind it.
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
/// As of [`take`]; in front of the `C` is the header of an entry of one.
unsafe fn run_one<C: Completion>(data: *const u64, pair: &SharedBytes, trustee: ThreadId) {
    // SAFETY: the caller's promise.
    let header = unsafe { data.sub(1).cast::<Header>().read() };
    let place = InPlace::of((header.at(), header.request_words()), pair, trustee);
    // SAFETY: the caller's promise.
    let completion = unsafe { data.cast::<C>().read() };
    completion.complete(Outcome::InPlace(place));
}

/// Completions that are being taken, each with an entry of its own. Meanwhile nothing else finds one in
/// the list, so that where this has come to need not be stored for each; it is when this is dropped, also
/// if one panics.
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
        debug_assert_eq!(self.list.place(), (self.end, 0), "other code took completions");
        self.list.next.set(self.place);
    }
}

/// As [`Taking`], of those of a run, which share an entry.
struct TakingRun<'a> {
    list: &'a Completions,
    /// The requests that have not been taken.
    results: Records<'a>,
    /// The word of the first request of the run.
    first: usize,
    /// The entry, and the next one.
    entries: (usize, usize),
}

impl Drop for TakingRun<'_> {
    #[cfg_attr(optimised, inline(always))]
    fn drop(&mut self) {
        debug_assert_eq!(
            self.list.place(),
            (self.list.end.get(), 0),
            "other code took completions"
        );
        let taken = self.results.position() - self.first;
        let (entry, next) = self.entries;
        let place = if self.results.left() > 0 { (entry, taken) } else { (next, 0) };
        self.list.next.set(place.0);
        self.list.taken.set(place.1);
    }
}

/// # Safety
/// `kind` is one of `C`s, and that of the next completion.
unsafe fn run<C: Completion>(
    kind: &Kind,
    list: &Completions,
    pair: &SharedBytes,
    trustee: ThreadId,
) {
    // SAFETY: in front of the end, as the caller promises.
    let (_, header, data) = unsafe { list.entry(list.next.get()) };
    if header.run > 0 {
        // SAFETY: this is the entry that comes next, of completions of type `C`.
        return unsafe { run_entry::<C>(list, header, data, pair, trustee) };
    }
    let mut all = Taking::new(list);
    while all.place < all.end {
        // SAFETY: in front of the end, where an entry begins, as for all that `place` comes to.
        let (next, header, data) = unsafe { list.entry(all.place) };
        if !std::ptr::eq(next, kind) || header.run > 0 {
            break;
        }
        all.place += const { words_of::<C>() };
        let place = InPlace::of((header.at(), header.request_words()), pair, trustee);
        // SAFETY: `push` wrote a `C` behind this kind of `C`s. It is taken once: `place` is behind it,
        // and no other code takes from this list or adds to it while it is being answered.
        let completion = unsafe { data.cast::<C>().read() };
        completion.complete(Outcome::InPlace(place));
    }
}

/// Runs the completions of a run's entry that have not been taken.
///
/// # Safety
/// The entry is the next of the list, has this header, and `data` are the own words of its completions,
/// which are of type `C`.
#[cfg_attr(optimised, inline(always))]
unsafe fn run_entry<C: Completion>(
    list: &Completions,
    header: Header,
    data: *const u64,
    pair: &SharedBytes,
    trustee: ThreadId,
) {
    let ((entry, taken), first) = (list.place(), header.at());
    let results = pair.words().part(0, first + header.requests()).records(first + taken, 1);
    let entries = (entry, entry + header.requests() * const { words_of::<C>() });
    list.next.set(list.end.get());
    list.taken.set(0);
    let mut all = TakingRun { list, results, first, entries };
    while all.results.left() > 0 {
        let (value, at) = (all.results.load(0), all.results.position());
        all.results.pass();
        let own = data.wrapping_add((at - first) * const { own_words_of::<C>() });
        // SAFETY: one was added for each request of the run, as `close_entry` demands, one behind the
        // other. It is taken once: it is passed, and no other code takes from this list meanwhile.
        let completion = unsafe { own.cast::<C>().read() };
        let place = InPlace { value, at: at + 1, words: 0, pair, trustee };
        completion.complete(Outcome::InPlace(place));
    }
}

#[cfg(test)]
mod tests;

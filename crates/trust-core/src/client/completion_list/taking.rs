//! How completions are taken out of their list and run: one at a time, and as many of a kind as follow each
//! other. These functions know the type, and are what a [`Kind`] is made of.

use primitive::{Records, SharedBytes};
use transport_api::ThreadId;

use super::Completions;
use super::entry::{Header, Kind, own_words_of, words_of};
use crate::client::completion::Completion;
use crate::client::outcome::{InPlace, Outcome};

/// # Safety
/// `data` points to a `C` that is taken here and never again.
pub(super) unsafe fn take<C: Completion>(data: *const u64, outcome: Outcome<'_>) {
    // SAFETY: the caller's promise.
    let completion = unsafe { data.cast::<C>().read() };
    completion.complete(outcome);
}

/// # Safety
/// `data` points to a `C` that is not taken meanwhile.
pub(super) unsafe fn waiter_of<C: Completion>(data: *const u64) -> *const () {
    // SAFETY: the caller's promise.
    unsafe { &*data.cast::<C>() }.waiter()
}

/// # Safety
/// As of [`take`]; in front of the `C` is the header of an entry of one.
pub(super) unsafe fn run_one<C: Completion>(
    data: *const u64,
    pair: &SharedBytes,
    trustee: ThreadId,
) {
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
    /// The requests of the run.
    requests: usize,
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
        let (left, (entry, next)) = (self.results.left(), self.entries);
        let place = if left > 0 { (entry, self.requests - left) } else { (next, 0) };
        self.list.next.set(place.0);
        self.list.taken.set(place.1);
    }
}

/// # Safety
/// `kind` is one of `C`s, and that of the next completion.
pub(super) unsafe fn run<C: Completion>(
    kind: &Kind,
    list: &Completions,
    pair: &SharedBytes,
    trustee: ThreadId,
) {
    // SAFETY: in front of the end, as the caller promises.
    let (_, header, data) = unsafe { list.entry(list.next.get()) };
    debug_assert!(C::IN_RUNS || header.run == 0, "a run of completions {}", C::name());
    if const { C::IN_RUNS } && header.run > 0 {
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
        // SAFETY: `push` wrote a `C` after this kind of `C`s. It is taken once: `place` is after it,
        // and no other code takes from this list or adds to it while it is being answered.
        let completion = unsafe { data.cast::<C>().read() };
        completion.complete(Outcome::InPlace(place));
    }
}

/// In place of [`run`], for completions whose requests have no results in their places.
pub(super) fn no_place(_: &Kind, _: &Completions, _: &SharedBytes, _: ThreadId) {
    unreachable!("its request has no place for a result");
}

/// As [`no_place`], in place of [`run_one`].
pub(super) fn no_place_alone(_: *const u64, _: &SharedBytes, _: ThreadId) {
    unreachable!("its request has no place for a result");
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
    let ((entry, taken), first, requests) = (list.place(), header.at(), header.requests());
    let words = const { C::RUN.words() };
    let results = pair.words().part(0, first + requests * words);
    let results = results.records(first + taken * words, words);
    let entries = (entry, entry + requests * const { words_of::<C>() });
    list.next.set(list.end.get());
    list.taken.set(0);
    let mut all = TakingRun { list, results, requests, entries };
    while all.results.left() > 0 {
        let (value, at) = (all.results.load(0), all.results.position());
        all.results.pass();
        let own = data.wrapping_add((at - first) / words * const { own_words_of::<C>() });
        // SAFETY: one was added for each request of the run, as `close_entry` demands, one after the
        // other. It is taken once: it is passed, and no other code takes from this list meanwhile.
        let completion = unsafe { own.cast::<C>().read() };
        let place = InPlace { value, at: at + 1, words: words - 1, pair, trustee };
        completion.complete(Outcome::InPlace(place));
    }
}

//! Runs: requests that are the same but for their arguments, which an [`Outbox`] puts into a batch after
//! one head, with one entry for their completions.
//!
//! A request of a run writes its arguments and its completion, and nothing else: how many there are is
//! found when the run ends, by where it ends. One comparison of the property's name and one of the
//! [`Site`] find that a request continues the run; calls of plain bytes have a
//! word in common as well, which stands after the head. The first of its kind in a batch has a head of its
//! own, and the second begins a run, so that requests of kinds in turn are hardly dearer than without runs;
//! and a run that is open when a poll hands its batch over goes on in the next.

use std::num::NonZero;

use primitive::sync::Ordering;

use crate::client::completion::Completion;
use crate::client::completion_list::is_kept_apart;
use crate::client::outbox::Outbox;
use crate::client::request::{InRun, Request};
use crate::client::run::{CLOSED, Site, site_of};
use crate::closure::registry::{Delegated, closure_id};

impl Outbox {
    /// Puts a request that may be one of a run into the batch that is open. `name` is that of its property
    /// [here](Self::name_of).
    ///
    /// # Errors
    /// The completion, if no batch is open or the request has no room in it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn append_plain<D: Delegated, C: Completion + 'static>(
        &self,
        name: u64,
        arguments: impl InRun,
        completion: C,
    ) -> Result<(), C> {
        let (run, address) = (&self.run, site_of::<D, C>().address());
        let (is_alike, site) = (run.is_of(name, arguments.common()), run.site.get());
        if is_alike && site == address {
            if let Some(at) = self.place_in_run::<C>(arguments) {
                // SAFETY: the run is open, and its site says that its entry is for completions of type `C`.
                // The slot has room in it for as many requests as the entry has, at most.
                unsafe { run.entry.get().push(at, completion) };
                return Ok(());
            }
        } else if site & CLOSED != 0 && !(is_alike && site == address | CLOSED) {
            return self.append_single::<D, C>(name, arguments, completion);
        }
        let continues = is_alike && site | CLOSED == address | CLOSED;
        if self.prepare_run(continues, site_of::<D, C>())
            && let Some(at) = self.place_in_run::<C>(arguments)
        {
            // SAFETY: the run has just been opened, for this site; otherwise as above.
            unsafe { run.entry.get().push(at, completion) };
            return Ok(());
        }
        self.append_single::<D, C>(name, arguments, completion)
    }

    /// Writes the arguments of one more request of the run that is open, of which completions are `C`s, and
    /// returns its first word; `None` if there is no room for it.
    #[cfg_attr(optimised, inline(always))]
    fn place_in_run<C: Completion>(&self, arguments: impl InRun) -> Option<usize> {
        let words = const { C::RUN.words() };
        let at = self.slot.append_to_run(words, arguments.own(0))?;
        if const { C::RUN.words() > 1 } {
            let place = self.slot.memory().words().part(at, words);
            for index in 1..words {
                if let Some(word) = arguments.own(index) {
                    place.store(index, word, Ordering::Relaxed);
                }
            }
        }
        Some(at)
    }

    /// As [`append_plain`](Self::append_plain), while no run is open: a request with its own head.
    #[cfg_attr(optimised, inline(always))]
    fn append_single<D: Delegated, C: Completion + 'static>(
        &self,
        name: u64,
        arguments: impl InRun,
        completion: C,
    ) -> Result<(), C> {
        let head = self.append_inline(&request_of::<D, C>(name, &arguments), completion)?;
        if let Some(word) = arguments.common() {
            self.run.note_word(word, arguments.key());
        }
        if const { !is_kept_apart::<C>() } {
            self.run.head.set(head);
            self.run.name.set(name);
            self.run.site.set(site_of::<D, C>().address() | CLOSED);
        }
        Ok(())
    }

    /// Ends the run that is open, if one is. If the next request `continues` that, or else may be in a run
    /// with the one before, opens one for it, without requests; false if not, or if there is no room for it.
    #[cold]
    #[inline(never)]
    fn prepare_run(&self, continues: bool, site: &'static Site) -> bool {
        self.close_run();
        continues && self.open_run(site)
    }

    /// Opens a run without requests of the site of the last request, while none is open; false if there is
    /// no room for a request of it.
    #[cfg_attr(optimised, inline(always))]
    fn open_run(&self, site: &'static Site) -> bool {
        let (run, layout) = (&self.run, site.kind.layout);
        let first = self.slot.position() + 1 + layout.common_words();
        let Some((entry, most)) = self.filling.open_entry(site.kind, first) else { return false };
        if !self.slot.begin_run(layout, most) {
            return false;
        }
        if layout.common_words() > 0 {
            self.slot.memory().words().store(first - 1, run.word.get(), Ordering::Relaxed);
        }
        run.site.set(site.address());
        run.first.set(first);
        run.layout.set(layout);
        run.entry.set(entry);
        true
    }

    /// Ends the run that is open, if one is.
    #[cfg_attr(optimised, inline(always))]
    pub(super) fn close_run(&self) {
        if self.run.is_open() {
            self.slot.end_run();
            self.close_open_run();
        }
    }

    #[inline(never)]
    fn close_open_run(&self) {
        let (run, requests) = (&self.run, self.requests_of_run());
        run.site.set(run.site.get() | CLOSED);
        let (first, head) = (run.first.get(), run.head.get().of_run(requests));
        let at = first - 1 - run.layout.get().common_words();
        self.slot.memory().words().store(at, head.word(), Ordering::Relaxed);
        // SAFETY: it was opened for a run from `first` on, whose requests have brought their completions.
        unsafe { self.filling.close_entry(run.entry.get(), first, requests) };
    }

    /// Ends the run before its batch is handed over. The next batch begins with one if this ends with one.
    #[cfg_attr(optimised, inline(always))]
    pub(super) fn cut_run(&self) {
        if self.run.is_open() {
            self.close_open_run();
        } else {
            self.run.forget();
        }
    }

    /// The name of a property of the trustee, which no property of another trustee has.
    #[inline(always)]
    pub(crate) fn name_of(&self, property: u32) -> u64 {
        self.token() << 32 | u64::from(property)
    }

    /// Whether the last request is of the property with this name, as far as that is remembered.
    #[inline(always)]
    pub(crate) fn was_last(&self, name: u64) -> bool {
        self.run.name.get() == name
    }

    /// The word that requests have lately had in common, if [this](Self::set_key) is its key. A request with
    /// another word, or an encoded one, ends that.
    #[inline(always)]
    pub(crate) fn word_of_key(&self, key: NonZero<usize>) -> Option<u64> {
        self.run.word_of_key(key)
    }

    /// Makes `key` the key of this word, if requests have lately had it in common.
    #[inline(always)]
    pub(crate) fn set_key(&self, word: u64, key: NonZero<usize>) {
        if self.run.word.get() == word {
            self.run.note_word(word, Some(key));
        }
    }

    /// Requests of the run that is open.
    pub(super) fn requests_of_run(&self) -> usize {
        let run = &self.run;
        if !run.is_open() {
            return 0;
        }
        run.layout.get().requests_in(self.slot.position() - run.first.get())
    }

    /// Requests of the batch that is being filled.
    pub(super) fn filled(&self) -> usize {
        self.filling.count() + self.requests_of_run()
    }
}

/// A request of kind `D` with completion `C`, of the property with this name.
#[inline(always)]
pub(crate) fn request_of<D: Delegated, C: Completion>(
    name: u64,
    arguments: &impl InRun,
) -> Request<'_> {
    Request {
        property: name as u32,
        closure: closure_id::<D>(),
        arguments: arguments.arguments(),
        reply_words: const { C::RUN.common_words() + C::RUN.words() - 1 },
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // The completions of an open run are not in the list before, and would be forgotten.
        self.close_run();
    }
}

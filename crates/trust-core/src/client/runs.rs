//! Runs: requests that are the same but for their arguments, which an [`Outbox`] puts into a batch behind
//! one head, with one entry for their completions.
//!
//! A request of a run writes its argument and its completion, and nothing else: how many there are is
//! found when the run ends, by where it ends. One comparison of the property's name and one of the
//! [`Site`](crate::client::run::Site) find that a request continues the run. The first of its kind in a
//! batch has a head of its own, and the second begins a run, so that requests of kinds in turn are hardly
//! dearer than without runs; and a run that is open when a poll hands its batch over goes on in the next.

use primitive::sync::Ordering;

use crate::client::completion::Completion;
use crate::client::completion_list::is_kept_apart;
use crate::client::outbox::Outbox;
use crate::client::run::{CLOSED, Site, site_of};
use crate::closure::registry::{Delegated, closure_id};
use crate::codec::Plain;
use crate::wire::words::RequestHead;

impl Outbox {
    /// Puts a request with plain arguments, whose result is plain, into the batch that is open. `name` is
    /// that of its property [here](Self::name_of).
    ///
    /// # Errors
    /// The completion, if no batch is open or the request has no room in it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn append_plain<D: Delegated, C: Completion + 'static>(
        &self,
        name: u64,
        plain: Plain,
        completion: C,
    ) -> Result<(), C> {
        let (run, address) = (&self.run, site_of::<D, C>().address());
        let (is_property, site) = (run.name.get() == name, run.site.get());
        if is_property && site == address {
            if let Some(at) = self.slot.append_to_run(plain.word()) {
                // SAFETY: the run is open, and its site says that its entry is for completions of type `C`.
                // The slot has room in it for as many requests as the entry has, at most.
                unsafe { run.entry.get().push(at, completion) };
                return Ok(());
            }
        } else if site & CLOSED != 0 && !(is_property && site == address | CLOSED) {
            return self.append_single::<D, C>(name, plain, completion);
        }
        if self.prepare_run(name, site_of::<D, C>())
            && let Some(at) = self.slot.append_to_run(plain.word())
        {
            // SAFETY: the run has just been opened, for this site; otherwise as above.
            unsafe { run.entry.get().push(at, completion) };
            return Ok(());
        }
        self.append_single::<D, C>(name, plain, completion)
    }

    /// As [`append_plain`](Self::append_plain), while no run is open: a request with its own head.
    #[cfg_attr(optimised, inline(always))]
    fn append_single<D: Delegated, C: Completion + 'static>(
        &self,
        name: u64,
        plain: Plain,
        completion: C,
    ) -> Result<(), C> {
        let words = plain.words();
        let head = RequestHead::new(name as u32, closure_id::<D>(), words, false);
        let Some(room) = self.filling.room::<C>() else { return Err(completion) };
        let Some(at) = self.slot.append(words, head, plain.word()) else { return Err(completion) };
        self.filling.push(room, at, words, completion);
        if const { !is_kept_apart::<C>() } {
            self.run.head.set(head);
            self.run.name.set(name);
            self.run.site.set(site_of::<D, C>().address() | CLOSED);
        }
        Ok(())
    }

    /// Ends the run that is open, if one is. Opens one without requests if the one that ends, or else the
    /// request before, was of this property and this site; false if not, or if there is no room for a
    /// request of it.
    #[cold]
    #[inline(never)]
    fn prepare_run(&self, name: u64, site: &'static Site) -> bool {
        let run = &self.run;
        let continues =
            run.name.get() == name && run.site.get() | CLOSED == site.address() | CLOSED;
        self.close_run();
        continues && self.open_run(site)
    }

    /// Opens a run without requests of the site of the last request, while none is open; false if there is
    /// no room for a request of it.
    #[cfg_attr(optimised, inline(always))]
    fn open_run(&self, site: &'static Site) -> bool {
        let first = self.slot.position() + 1;
        let Some((entry, most)) = self.filling.open_entry(site.kind, first) else { return false };
        if !self.slot.begin_run(most) {
            return false;
        }
        let run = &self.run;
        run.site.set(site.address());
        run.first.set(first);
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
        let first = run.first.get();
        let head = run.head.get().of_run(requests);
        self.slot.memory().words().store(first - 1, head.word(), Ordering::Relaxed);
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

    /// Requests of the run that is open.
    pub(super) fn requests_of_run(&self) -> usize {
        if self.run.is_open() { self.slot.position() - self.run.first.get() } else { 0 }
    }

    /// Requests of the batch that is being filled.
    pub(super) fn filled(&self) -> usize {
        self.filling.count() + self.requests_of_run()
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // The completions of an open run are not in the list before, and would be forgotten.
        self.close_run();
    }
}

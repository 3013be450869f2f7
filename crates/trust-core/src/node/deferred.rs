//! [`Deferred`]: the work of a thread for itself that waits until the delegated code that runs now
//! has ended.
//!
//! Delegated code may send any number of requests to properties of its own thread, one by one, and
//! each waits here. So the queue is a chain of the lists that completions of requests are in
//! ([`Completions`]), which hold a piece of work without an allocation of its own:
//!
//! ```text
//!   run_next() <- | first | <- | full | <- | full | <- | last | <- push()
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use transport_api::ThreadId;

use crate::client::completion::Completion;
use crate::client::completion_list::Completions;
use crate::client::outcome::Outcome;
use crate::wire::words::Status;

/// Work to be done, in order.
#[derive(Default)]
pub(super) struct Deferred {
    /// What is done next. Nothing is added here.
    first: Completions,
    /// What follows, in lists that are full.
    full: RefCell<VecDeque<Completions>>,
    /// What follows that.
    last: Completions,
    /// An empty list, so that a long queue does not allocate one for each that it uses up.
    spare: Completions,
    is_busy: Cell<bool>,
}

/// A piece of work, as the completion of a request that the thread has sent itself.
struct Work<F>(F);

impl<F: FnOnce()> Completion for Work<F> {
    const IN_PLACE: bool = false;

    #[inline(always)]
    fn complete(self, outcome: Outcome<'_>) {
        // A queue that is dropped fails what is left in it. That is dropped, too: its node is gone.
        if !matches!(outcome, Outcome::Failed(_)) {
            (self.0)();
        }
    }
}

impl Deferred {
    /// Whether work waits, or is being done.
    #[inline(always)]
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.get()
    }

    /// Adds work after all the rest.
    #[inline(always)]
    pub(super) fn push<F: FnOnce() + 'static>(&self, work: F) {
        self.is_busy.set(true);
        let room = self.last.room::<Work<F>>().unwrap_or_else(|| {
            self.begin_list();
            self.last.room::<Work<F>>().expect("an empty list has room")
        });
        self.last.push(room, 0, 0, Work(work));
    }

    /// Makes room after a list that is full.
    #[cold]
    #[inline(never)]
    fn begin_list(&self) {
        let list = Completions::default();
        list.swap(&self.spare);
        list.swap(&self.last);
        self.full.borrow_mut().push_back(list);
    }

    /// Does the next piece of work, which may push more; false if there is none.
    ///
    /// # Panics
    /// If it panics; it counts as done then.
    #[inline(always)]
    pub(super) fn run_next(&self, me: ThreadId) -> bool {
        let next = self.first.next().or_else(|| {
            self.next_list();
            self.first.next()
        });
        let Some(next) = next else {
            self.is_busy.set(false);
            return false;
        };
        self.first.run(next, Outcome::Reply { trustee: me, status: Status::Done, payload: &[] });
        true
    }

    /// Makes the second list the first, which has been used up.
    #[cold]
    #[inline(never)]
    fn next_list(&self) {
        self.first.clear();
        match self.full.borrow_mut().pop_front() {
            Some(next) => {
                self.first.swap(&next);
                self.spare.swap(&next);
            }
            None => self.first.swap(&self.last),
        }
    }
}

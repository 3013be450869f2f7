//! [`Outboxes`]: those of a thread, to every other thread of the rack, and a list of those that have
//! something under way. One comparison finds the one that was used last: most threads go on sending to
//! the same trustee.

use std::cell::Cell;
use std::ptr::null;

use crate::client::outbox::Outbox;

/// Calls of [`Outboxes::sweep_at_times`] between two that sweep.
const SWEEP_EVERY: u32 = 32;

/// The outboxes of a thread, by the number of the thread that they lead to.
pub(crate) struct Outboxes {
    /// Never changed, so that each stays where it is.
    all: Box<[Option<Box<Outbox>>]>,
    /// The one that was used last; null if none was.
    recent: Cell<*const Outbox>,
    /// Its token, and the id of its thread, as words.
    token: Cell<u64>,
    home: Cell<u64>,
    /// Those with something under way; after the first `busy_count` there is nothing.
    busy: Box<[Cell<*const Outbox>]>,
    busy_count: Cell<usize>,
    /// Calls of [`sweep_at_times`](Self::sweep_at_times) before the next one that sweeps.
    until_sweep: Cell<u32>,
}

impl Outboxes {
    /// These, by the number of the thread that they lead to.
    pub(crate) fn new(all: Box<[Option<Box<Outbox>>]>) -> Self {
        let token = Cell::new(u64::MAX);
        let (recent, home) = (Cell::new(null()), Cell::new(u64::MAX));
        let busy = all.iter().map(|_| Cell::new(null())).collect();
        let (busy_count, until_sweep) = (Cell::new(0), Cell::new(SWEEP_EVERY));
        Outboxes { all, recent, token, home, busy, busy_count, until_sweep }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Outbox> {
        self.all.iter().flatten().map(|outbox| &**outbox)
    }

    /// The one to the thread with this number, if there is one.
    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&Outbox> {
        self.all.get(number as usize)?.as_deref()
    }

    /// The one with this token, if it was used last.
    #[inline(always)]
    pub(super) fn recent_with_token(&self, token: u64) -> Option<&Outbox> {
        (self.token.get() == token).then(|| self.recent())
    }

    /// The one to the thread with this id, if it was used last.
    #[inline(always)]
    pub(super) fn recent_at(&self, home: u64) -> Option<&Outbox> {
        if self.home.get() == home { self.last_used() } else { None }
    }

    /// The one to the thread with this id, which is that of this number. It is used now.
    pub(super) fn use_at(&self, home: u64, number: u32) -> Option<&Outbox> {
        let outbox = self.get(number)?;
        self.recent.set(outbox);
        self.token.set(outbox.token());
        self.home.set(home);
        Some(outbox)
    }

    /// The one that was used last, if one was.
    #[inline(always)]
    pub(super) fn last_used(&self) -> Option<&Outbox> {
        (!self.recent.get().is_null()).then(|| self.recent())
    }

    /// The one that was used last. There is one: the caller has found its token.
    #[inline(always)]
    fn recent(&self) -> &Outbox {
        debug_assert!(!self.recent.get().is_null());
        // SAFETY: `use_at` has set it, with the token that the caller has found, to an outbox in one of the
        // boxes, which are not changed while they are borrowed here.
        unsafe { &*self.recent.get() }
    }

    /// The busy one at this place of their list, if there are as many.
    #[inline(always)]
    pub(super) fn busy(&self, index: usize) -> Option<&Outbox> {
        if index >= self.busy_count.get() {
            return None;
        }
        // SAFETY: `index` is below the count. `list` stores a pointer to a boxed outbox at a place before it
        // raises the count past it, and the boxes do not change while `self` is borrowed.
        Some(unsafe { &*self.busy.get_unchecked(index).get() })
    }

    /// All that are busy.
    pub(super) fn all_busy(&self) -> impl Iterator<Item = &Outbox> {
        (0..).map_while(|index| self.busy(index))
    }

    /// Lists the one to this thread as busy, if it is not.
    pub(super) fn list(&self, number: u32) {
        let outbox = self.get(number).expect("only outboxes that exist are used");
        if !outbox.listed.replace(true) {
            let count = self.busy_count.get();
            self.busy[count].set(outbox);
            self.busy_count.set(count + 1);
        }
    }

    /// As [`sweep`](Self::sweep), in one call of many: for polls that look at the lanes each time.
    pub(super) fn sweep_at_times(&self) {
        let (left, is_due) = self.until_sweep.get().overflowing_sub(1);
        self.until_sweep.set(if is_due { SWEEP_EVERY } else { left });
        if is_due {
            self.sweep();
        }
    }

    /// Takes those off the list that do not stay there.
    pub(super) fn sweep(&self) {
        let mut index = 0;
        while let Some(outbox) = self.busy(index) {
            if outbox.stays_listed() {
                index += 1;
            } else {
                self.unlist(index);
            }
        }
    }

    /// Takes the busy one at this place off the list; the last one takes its place.
    fn unlist(&self, index: usize) {
        let outbox = self.busy(index).expect("a place of the list");
        outbox.listed.set(false);
        let last = self.busy_count.get() - 1;
        self.busy_count.set(last);
        self.busy[index].set(self.busy[last].get());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use transport_shm::ShmTransport;

    use crate::client::run::NO_TOKEN;
    use crate::node::state::NodeId;
    use crate::node::wiring::Wiring;

    #[test]
    fn the_outbox_that_was_used_last_is_found_by_token_and_thread() {
        let rack = ShmTransport::threads(3).expect("a rack");
        let wiring = Wiring::connect(rack, 7, Duration::ZERO).expect("a wired rack");
        let node = wiring.node(0).expect("a node");
        let found = |token| node.recent_with_token(token).map(|outbox| outbox.trustee().thread);
        let at = |rack, number| node.outbox_at(NodeId::new(rack, number));
        assert_eq!(found(NO_TOKEN), None);
        assert!(node.outbox_at(NodeId::NONE).is_none(), "none was used yet");
        let [one, two] = [1, 2].map(|number| at(7, number).expect("another thread").token());
        assert_eq!((found(one), found(two)), (None, Some(2)));
        assert!(at(7, 0).is_none() && at(7, 3).is_none(), "itself, and none");
        assert!(at(6, 2).is_none() && at(8, 2).is_none(), "of other racks");
        assert_eq!((found(one), found(two)), (None, Some(2)));
        assert_eq!(at(7, 1).map(|outbox| outbox.trustee().thread), Some(1));
        assert_eq!(at(7, 1).map(|outbox| outbox.trustee().thread), Some(1));
        assert_eq!((found(one), found(two), found(NO_TOKEN)), (Some(1), None, None));
    }

    #[test]
    fn busy_outboxes_are_listed_once() {
        let rack = ShmTransport::threads(3).expect("a rack");
        let wiring = Wiring::connect(rack, 0, Duration::ZERO).expect("a wired rack");
        let outboxes = &wiring.node(0).expect("a node").outboxes;
        let busy = || outboxes.all_busy().map(|outbox| outbox.trustee().thread).collect::<Vec<_>>();
        [1, 2, 1].into_iter().for_each(|number| outboxes.list(number));
        assert_eq!(busy(), [1, 2]);
        outboxes.unlist(0);
        assert_eq!(busy(), [2]);
        outboxes.list(1);
        assert_eq!(busy(), [2, 1]);
        (0..2).for_each(|_| outboxes.unlist(0));
        assert_eq!(busy(), []);
    }
}

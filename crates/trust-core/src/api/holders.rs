//! [`Holders`]: which fibers of a thread hold a latch, and which wait for it (`latch.rs` has the latch,
//! which is this and a value).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use fiber::FiberId;

use crate::api::latch_report::{AwaitsLatch, HeldByCaller, NamedHolder};
use crate::node::CallSite;
use crate::node::chain::{launched_by, relation};

/// Who holds a latch, or waits for it.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    /// `None` outside fibers.
    fiber: Option<FiberId>,
    /// Where it locks the latch; `None` for a launched closure.
    pub(super) place: Option<CallSite>,
}

/// How a fiber holds a latch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Alone,
    Shared,
}

impl Holder {
    #[inline(always)]
    pub(super) fn current(place: Option<CallSite>) -> Holder {
        Holder { fiber: fiber::current(), place }
    }
}

/// Who has a latch, and who waits for it.
#[derive(Default)]
pub(super) struct Holders {
    /// Who holds it alone; `None` if it is open or shared.
    holder: Cell<Option<Holder>>,
    /// Who shares it. Empty while it has a holder.
    readers: RefCell<Vec<Holder>>,
    /// In the order in which they get it. Empty while the latch is open; the first one of a latch that
    /// is shared wants it alone.
    waiting: RefCell<VecDeque<(Holder, Access)>>,
    /// The number of the latch's property, once a closure was launched on it: for messages.
    property: Cell<Option<u32>>,
}

impl Holders {
    /// Whether a fiber may have the latch now. A reader waits behind a writer that waits, so that
    /// readers cannot keep writers out.
    #[inline]
    pub(super) fn is_free_for(&self, access: Access) -> bool {
        self.holder.get().is_none()
            && match access {
                Access::Alone => self.readers.borrow().is_empty(),
                Access::Shared => self.waiting.borrow().is_empty(),
            }
    }

    /// Gives the latch to `me` if it may have it now.
    #[inline]
    pub(super) fn take(&self, me: Holder, access: Access) -> bool {
        let is_free = self.is_free_for(access);
        match access {
            _ if !is_free => {}
            Access::Alone => self.holder.set(Some(me)),
            Access::Shared => self.readers.borrow_mut().push(me),
        }
        is_free
    }

    /// Whether it has neither a holder nor readers.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.holder.get().is_none() && self.readers.borrow().is_empty()
    }

    /// Waits until the current fiber may have the latch, whose value is of this type: for a lock at
    /// `place`, or for a closure launched on the latch, which is that property. An error if that would wait
    /// for itself.
    #[inline]
    pub(super) fn hold(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
        access: Access,
        value: &'static str,
    ) -> Result<Holder, HeldByCaller> {
        let me = Holder::current(place);
        if property.is_some() {
            self.property.set(property);
        }
        if self.is_open() && self.take(me, access) {
            return Ok(me);
        }
        self.hold_slow(me, access, value)
    }

    /// As [`hold`](Self::hold), if the latch has a holder or readers.
    #[inline(never)]
    fn hold_slow(
        &self,
        me: Holder,
        access: Access,
        value: &'static str,
    ) -> Result<Holder, HeldByCaller> {
        // Readers also where they need not wait: whether a writer comes between is a matter of chance.
        if let Some(held) = self.held_by_caller(me) {
            return Err(held);
        }
        if !self.take(me, access) {
            assert!(me.fiber.is_some(), "a latch that is held is waited for by a fiber");
            self.wait(me, access, value);
        }
        Ok(me)
    }

    /// Whether a wait for the latch would wait for `me`, the current fiber.
    fn held_by_caller(&self, me: Holder) -> Option<HeldByCaller> {
        let fiber = me.fiber?;
        let holders = self.holders();
        let fibers = holders.iter().filter_map(|holder| holder.fiber);
        let (holding, relation) = relation(fibers, fiber)?;
        let holder = holders.iter().find(|holder| holder.fiber == Some(holding))?;
        Some(HeldByCaller { relation, locked: holder.place })
    }

    /// Takes the latch from `me`, who has it, and gives it to those whose turn it is.
    #[inline]
    pub(super) fn give_up(&self, me: Holder, access: Access) {
        match access {
            Access::Alone => self.holder.set(None),
            Access::Shared => {
                let mut readers = self.readers.borrow_mut();
                let at = readers.iter().position(|reader| reader.fiber == me.fiber);
                at.map(|at| readers.swap_remove(at));
            }
        }
        if !self.waiting.borrow().is_empty() {
            self.pass_on();
        }
    }

    /// Gives the latch to the fiber that has waited longest, if it may have it, with those after it
    /// that may share it. To them it is closed at once, before they run.
    #[inline(never)]
    fn pass_on(&self) {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            let Some(&(next, access)) = waiting.front() else { return };
            let may_have = self.holder.get().is_none()
                && (access == Access::Shared || self.readers.borrow().is_empty());
            if !may_have {
                return;
            }
            waiting.pop_front();
            drop(waiting);
            match access {
                Access::Alone => self.holder.set(Some(next)),
                Access::Shared => self.readers.borrow_mut().push(next),
            }
            if let Some(fiber) = next.fiber {
                fiber::unpark(fiber);
            }
        }
    }

    /// Who holds it now.
    fn holders(&self) -> Vec<Holder> {
        self.holder.get().into_iter().chain(self.readers.borrow().iter().copied()).collect()
    }

    /// What `me`, the current fiber, waits for: the latch of a value of this type.
    fn awaited_by(&self, me: Holder, value: &'static str) -> AwaitsLatch {
        let launched = me.fiber.filter(|_| me.place.is_none());
        let named = |holder: Holder| NamedHolder {
            name: holder.fiber.and_then(fiber::name_of),
            locked_at: holder.place,
            held_for: holder.fiber.and_then(launched_by),
        };
        AwaitsLatch {
            value,
            property: self.property.get(),
            launched_by: launched.and_then(launched_by),
            is_shared: self.holder.get().is_none(),
            holders: self.holders().into_iter().map(named).collect(),
        }
    }

    /// Waits until the latch, whose value is of this type, is given to `me`, the current fiber.
    pub(super) fn wait(&self, me: Holder, access: Access, value: &'static str) {
        self.waiting.borrow_mut().push_back((me, access));
        let queued = Queued { holders: self, me, access };
        let mut wait = me.place.map_or_else(fiber::Wait::new, fiber::Wait::at);
        while queued.is_waiting() {
            wait.explain(|| self.awaited_by(me, value));
            if !fiber::park_or_give_up() && queued.is_waiting() {
                panic!(
                    "a latch that is held by a fiber that does not end cannot be locked in a \
                     destructor while the rack ends: use `try_lock`"
                );
            }
        }
        std::mem::forget(queued);
    }
}

/// A fiber in the queue of a latch. Dropped when the fiber is unwound there.
struct Queued<'a> {
    holders: &'a Holders,
    me: Holder,
    access: Access,
}

impl Queued<'_> {
    fn is_waiting(&self) -> bool {
        self.holders.waiting.borrow().iter().any(|(other, _)| other.fiber == self.me.fiber)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if self.is_waiting() {
            self.holders.waiting.borrow_mut().retain(|(other, _)| other.fiber != self.me.fiber);
            // Those after it may be readers, for whom the latch is free without it.
            self.holders.pass_on();
        } else {
            self.holders.give_up(self.me, self.access);
        }
    }
}

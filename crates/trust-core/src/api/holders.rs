//! [`Holders`]: which fibers of a thread hold a latch, and which wait for it (`latch.rs` has the latch,
//! which is this and a value).

use std::any::type_name;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use fiber::FiberId;

use crate::api::latch_report::{AwaitsLatch, HeldByCaller, NamedHolder};
use crate::node::CallSite;
use crate::node::chain::{launched_by, relation};

/// A fiber that holds a latch, or waits for it.
#[derive(Clone, Copy)]
pub(super) struct Contender {
    /// `None` outside fibers.
    fiber: Option<FiberId>,
    /// Where it locks the latch; `None` for a launched closure.
    pub(super) place: Option<CallSite>,
}

/// How a fiber holds a latch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockMode {
    Exclusive,
    Shared,
}

impl Contender {
    #[inline(always)]
    pub(super) fn current(place: Option<CallSite>) -> Contender {
        Contender { fiber: fiber::current(), place }
    }
}

/// Who has a latch, and who waits for it.
pub(super) struct Holders {
    /// Who holds it alone; `None` if it is open or shared.
    holder: Cell<Option<Contender>>,
    /// Who shares it. Empty while it has a holder.
    readers: RefCell<Vec<Contender>>,
    /// In the order in which they get it. Empty while the latch is open; the first one of a latch that
    /// is shared wants it alone.
    waiting: RefCell<VecDeque<(Contender, LockMode)>>,
    /// The number of the latch's property, once a closure was launched on it: for messages.
    property: Cell<Option<u32>>,
    /// The name of the value's type, for reports. A function, because that is one word.
    value: fn() -> &'static str,
}

impl Holders {
    /// Those of an open latch of a `T`.
    pub(super) fn of<T>() -> Self {
        Holders {
            holder: Cell::default(),
            readers: RefCell::default(),
            waiting: RefCell::default(),
            property: Cell::default(),
            value: type_name::<T>,
        }
    }

    /// Whether a fiber may have the latch now. A reader waits behind a writer that waits, so that
    /// readers cannot keep writers out.
    #[inline]
    pub(super) fn is_free_for(&self, mode: LockMode) -> bool {
        self.holder.get().is_none()
            && match mode {
                LockMode::Exclusive => self.readers.borrow().is_empty(),
                LockMode::Shared => self.waiting.borrow().is_empty(),
            }
    }

    /// Gives the latch to `me` if it may have it now.
    #[inline]
    pub(super) fn take(&self, me: Contender, mode: LockMode) -> bool {
        let is_free = self.is_free_for(mode);
        match mode {
            _ if !is_free => {}
            LockMode::Exclusive => self.holder.set(Some(me)),
            LockMode::Shared => self.readers.borrow_mut().push(me),
        }
        is_free
    }

    /// Whether it has neither a holder nor readers.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.holder.get().is_none() && self.readers.borrow().is_empty()
    }

    /// Waits until the current fiber may have the latch: for a lock at `place`, or for a closure launched on
    /// the latch, which is that property. An error if that would wait for itself.
    #[inline]
    pub(super) fn hold(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
        mode: LockMode,
    ) -> Result<Contender, HeldByCaller> {
        let me = Contender::current(place);
        if property.is_some() {
            self.property.set(property);
        }
        if self.is_open() && self.take(me, mode) {
            return Ok(me);
        }
        self.hold_slow(me, mode)
    }

    /// As [`hold`](Self::hold), if the latch has a holder or readers.
    #[inline(never)]
    fn hold_slow(&self, me: Contender, mode: LockMode) -> Result<Contender, HeldByCaller> {
        // Readers also where they need not wait: whether a writer comes between is a matter of chance.
        if let Some(held) = self.held_by_caller(me) {
            return Err(held);
        }
        if !self.take(me, mode) {
            assert!(me.fiber.is_some(), "a latch that is held is waited for by a fiber");
            self.wait(me, mode);
        }
        Ok(me)
    }

    /// Whether a wait for the latch would wait for `me`, the current fiber.
    fn held_by_caller(&self, me: Contender) -> Option<HeldByCaller> {
        let fiber = me.fiber?;
        let holders = self.holders();
        let fibers = holders.iter().filter_map(|holder| holder.fiber);
        let (holding, relation) = relation(fibers, fiber)?;
        let holder = holders.iter().find(|holder| holder.fiber == Some(holding))?;
        Some(HeldByCaller { relation, locked: holder.place })
    }

    /// Takes the latch from `me`, who has it, and gives it to those whose turn it is.
    #[inline]
    pub(super) fn give_up(&self, me: Contender, mode: LockMode) {
        match mode {
            LockMode::Exclusive => self.holder.set(None),
            LockMode::Shared => {
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
            let Some(&(next, mode)) = waiting.front() else { return };
            let may_have = self.holder.get().is_none()
                && (mode == LockMode::Shared || self.readers.borrow().is_empty());
            if !may_have {
                return;
            }
            waiting.pop_front();
            drop(waiting);
            match mode {
                LockMode::Exclusive => self.holder.set(Some(next)),
                LockMode::Shared => self.readers.borrow_mut().push(next),
            }
            if let Some(fiber) = next.fiber {
                fiber::unpark(fiber);
            }
        }
    }

    /// Who holds it now.
    fn holders(&self) -> Vec<Contender> {
        self.holder.get().into_iter().chain(self.readers.borrow().iter().copied()).collect()
    }

    /// What `me`, the current fiber, waits for.
    fn awaited_by(&self, me: Contender) -> AwaitsLatch {
        let launched = me.fiber.filter(|_| me.place.is_none());
        let named = |holder: Contender| NamedHolder {
            name: holder.fiber.and_then(fiber::name_of),
            locked_at: holder.place,
            held_for: holder.fiber.and_then(launched_by),
        };
        AwaitsLatch {
            value: (self.value)(),
            property: self.property.get(),
            launched_by: launched.and_then(launched_by),
            is_shared: self.holder.get().is_none(),
            holders: self.holders().into_iter().map(named).collect(),
        }
    }

    /// Waits until the latch is given to `me`, the current fiber.
    pub(super) fn wait(&self, me: Contender, mode: LockMode) {
        self.waiting.borrow_mut().push_back((me, mode));
        let queued = Queued { holders: self, me, mode };
        let mut wait = me.place.map_or_else(fiber::Wait::new, fiber::Wait::at);
        while queued.is_waiting() {
            wait.explain(|| self.awaited_by(me));
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
    me: Contender,
    mode: LockMode,
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
            self.holders.give_up(self.me, self.mode);
        }
    }
}

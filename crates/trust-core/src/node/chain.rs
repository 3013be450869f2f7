//! Chains of launches: which calls wait for a launched closure, so that a launch on a latch that
//! one of them holds is an error, and not a wait that never ends.
//!
//! ```text
//!   fiber            launches on L         on M                  on L
//!   of a user  ----> fiber 1, holds L ---> fiber 2, holds M ---> fiber 3: L is held by fiber 1
//!                    callers: -            callers: 1            callers: 1, 2
//! ```
//!
//! A launch names itself by where its reply goes, which is unique as long as a fiber waits for it.
//! The names of those that wait for a launch travel with it, and its trustee notes them for as long
//! as its fiber runs. Only when a launch is refused is it asked where each was made.
//!
//! What a peer says of callers is believed only so far: it can get its own launches refused, no
//! others.

use fiber::FiberId;
use primitive::limits::LAUNCH_DEPTH;

use crate::error::{CallResult, DelegateError};
use crate::node::awaited::ReplyTo;
use crate::node::callers::{Call, Callers, too_deep};
use crate::node::entered::on_node;
use crate::node::state::Node;

impl Call {
    /// Notes that the current fiber runs the launched closure, until the guard is dropped.
    #[inline(always)]
    pub(crate) fn run(self) -> Running {
        let (fiber, is_timed) = (fiber::current(), self.is_timed);
        if let Some(fiber) = fiber {
            on_node(|node| node.launched.insert(fiber, self));
        }
        Running { fiber, is_timed }
    }
}

/// While it lives, its fiber is known to run a launched closure.
pub(crate) struct Running {
    fiber: Option<FiberId>,
    /// As of the [`Call`].
    is_timed: bool,
}

impl Running {
    /// The closure has its latch: launches of its own begin a new chain, if its caller waits for a
    /// limited time only.
    #[inline(always)]
    pub(crate) fn has_latch(&self) {
        if self.is_timed {
            self.forget_callers();
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_callers(&self) {
        if let Some(fiber) = self.fiber {
            on_node(|node| {
                node.launched.change(fiber, |call| call.callers = Callers::default());
            });
        }
    }
}

impl Drop for Running {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(fiber) = self.fiber {
            on_node(|node| node.launched.remove(fiber));
        }
    }
}

impl Node {
    /// The calls that will wait for a launch by the current fiber.
    ///
    /// # Errors
    /// If there would be too many.
    #[inline(always)]
    pub(crate) fn callers(&self) -> CallResult<Callers> {
        match fiber::current() {
            Some(fiber) if self.launched.borrow().get(fiber).is_some() => self.callers_with(fiber),
            _ => Ok(Callers::default()),
        }
    }

    /// As [`callers`](Self::callers), by this fiber, which runs a launch.
    #[cold]
    #[inline(never)]
    fn callers_with(&self, fiber: FiberId) -> CallResult<Callers> {
        let launched = self.launched.borrow();
        let Some(call) = launched.get(fiber) else { return Ok(Callers::default()) };
        if call.callers.calls().len() == LAUNCH_DEPTH {
            let refused = DelegateError::Refused { trustee: self.me, reason: too_deep() };
            return Err(Box::new(refused));
        }
        Ok(call.callers.with(call.reply_to))
    }
}

/// How the fiber that holds a latch depends on the one that wants it.
#[derive(Clone, Copy)]
pub(crate) enum Relation {
    /// They are one; the launch that it runs, if it does.
    Itself(Option<ReplyTo>),
    /// The holder runs this launch, and waits for the other.
    Caller(ReplyTo),
}

/// The call that has launched what `fiber` of this thread runs, if it runs a launched closure.
pub(crate) fn launched_by(fiber: FiberId) -> Option<ReplyTo> {
    on_node(|node| node.launched.borrow().get(fiber).map(|call| call.reply_to)).flatten()
}

/// How one of `holders` depends on `wants`, all of them fibers of this thread, and which; `None` if
/// none does.
pub(crate) fn relation(
    mut holders: impl Iterator<Item = FiberId>,
    wants: FiberId,
) -> Option<(FiberId, Relation)> {
    on_node(|node| {
        let launched = node.launched.borrow();
        let callers = launched.get(wants).map(|call| call.callers.calls()).unwrap_or_default();
        holders.find_map(|holder| {
            if holder != wants && callers.is_empty() {
                return None;
            }
            let held_by = launched.get(holder).map(|call| call.reply_to);
            let relation = if holder == wants {
                Relation::Itself(held_by)
            } else {
                Relation::Caller(held_by.filter(|call| callers.contains(call))?)
            };
            Some((holder, relation))
        })
    })
    .flatten()
}

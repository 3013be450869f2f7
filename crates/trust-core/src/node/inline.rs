//! What runs on the node's own thread outside requests: deferred work, the drop of properties, and
//! the turns of a fiber that calls properties of its own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::closure::context::Context;
use crate::node::entered::on_node;
use crate::node::state::Node;
use crate::node::turn::Turn;
use crate::trustee::property::Dead;

impl Node {
    /// Runs `work` on this thread: now, or when the delegated code that runs now has ended.
    #[inline(always)]
    pub(crate) fn run_or_defer(&self, work: impl FnOnce(&Node) + 'static) {
        if self.context.is_free() {
            work(self);
            self.run_deferred();
        } else {
            self.defer(work);
        }
    }

    /// As [`run_or_defer`](Self::run_or_defer), but never before what has been deferred already. For
    /// the drops of trusts: a deferred call holds no trust of its property, which lives until then
    /// because no drop overtakes the call.
    pub(super) fn run_in_order(&self, work: impl FnOnce(&Node) + 'static) {
        if self.has_deferred() { self.defer(work) } else { self.run_or_defer(work) }
    }

    /// Runs `work` on this thread when the delegated code that runs now has ended, and what was
    /// deferred before.
    #[inline(always)]
    pub(crate) fn defer(&self, work: impl FnOnce(&Node) + 'static) {
        self.deferred.push(move || {
            on_node(work);
        });
    }

    /// Runs what was deferred, if delegated code has ended.
    #[inline(always)]
    pub(crate) fn run_deferred(&self) {
        if self.has_deferred() && self.context.is_free() && !self.runs_deferred.get() {
            self.run_deferred_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn run_deferred_now(&self) {
        // What is deferred may defer more, and ends in free context like all delegated code: the
        // loop here runs it, so that the stack does not grow with the length of the chain.
        self.runs_deferred.set(true);
        // Work may wait after its closure has ended (in the destructor of what a panic drops), and
        // another fiber enter a closure meanwhile. What is left runs when that one has ended.
        let run = || while self.context.is_free() && self.deferred.run_next(self.me) {};
        while let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.report_panic(panic);
        }
        self.runs_deferred.set(false);
    }

    /// Drops a property that nothing refers to any more.
    pub(crate) fn drop_property(&self, dead: Option<Dead>) {
        if let Some(dead) = dead {
            let context = self.context.enter(Context::Dropping);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(dead))) {
                self.report_panic(panic);
            }
            drop(context);
        }
    }

    /// Counts a call of a property of this thread, before it runs in free context. Now and then the
    /// fiber that makes it lets the worker and the other fibers run first.
    #[inline(always)]
    pub(crate) fn count_inline_call(&self) {
        if self.turn.count() {
            self.end_turn_if_over();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_turn_if_over(&self) {
        if self.turn.look() {
            let _begins = BeginTurn(&self.turn);
            if self.context().is_free() && fiber::in_fiber() {
                let _stay = self.stay();
                fiber::yield_to_worker();
            }
        }
    }
}

/// Begins the next turn when it is dropped: also when the fiber that gave way is cancelled, after which
/// other fibers go on with the count.
struct BeginTurn<'a>(&'a Turn);

impl Drop for BeginTurn<'_> {
    fn drop(&mut self) {
        self.0.begin();
    }
}

//! How the fibers of a scheduler that is dropped are unwound.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use primitive::drop_payload;

use crate::abort::die;
use crate::core::Core;
use crate::core::block::{Block, Children, State};
use crate::core::current::{CURRENT, Entered};
use crate::core::inbox::Message;

/// How often a cancelled fiber may catch its own unwinding and wait again before the process is
/// aborted.
const MAX_DEFIANCE: u32 = 64;
/// How many waits of destructors may return at once, in a cancelled fiber, before the process is
/// aborted: they are in a loop that waits for something that cannot happen any more.
const MAX_FUTILE_WAITS: u32 = 1 << 20;

/// The payload thrown in a fiber that waits after its cancellation.
struct Cancellation;

impl Core {
    /// Refuses new fibers, unwinds the suspended ones, and returns how many there were.
    ///
    /// While fibers run, it only sees to it that the core stays for good: the process is ending,
    /// since a fiber has called `exit`, which drops what is in thread-locals under `run`.
    pub(crate) fn close(self: &Rc<Self>) -> usize {
        if self.runs.get() {
            std::mem::forget(Rc::clone(self));
            return 0;
        }
        self.closing.set(true);
        // Before entering: dropping what others have sent runs their code, which must find this
        // thread's fiber running, if there is one, and not run another scheduler on its stack.
        drop_quietly(self.shared.close());
        let unwound = self.live();
        // Fibers with children last: children of this thread are unwound here, those of other threads
        // there, or end.
        while self.unwind_suspended() {
            self.end_children();
        }
        unwound
    }

    /// For fibers with children, when all others are unwound: waits for children on other threads. Without
    /// such children, unwinds a fiber that still runs the closure of its scope, since that may hold
    /// callbacks; `scope` then waits behind the closure, by way of this. If there is no such fiber,
    /// ends the process with a message instead of a wait that never ends: this thread runs no other
    /// scheduler meanwhile.
    fn end_children(&self) {
        // In this order: what is on this thread only does not change while this looks.
        let elsewhere = self.any_children_elsewhere();
        let waits = |block: &Block| match block.state.get() {
            State::Free | State::Cancelled => true,
            _ => block.has_children(),
        };
        if !self.blocks().all(waits) {
            return;
        }
        if elsewhere {
            return std::thread::park();
        }
        let may_hold = |block: &&Block| {
            !matches!(block.state.get(), State::Free | State::Cancelled)
                && block.may_hold_children()
        };
        if let Some(block) = self.blocks().find(may_hold) {
            let _entered = Entered::for_teardown(self);
            self.unwind(block);
        } else if let Some(block) = self.blocks().find(|block| block.has_children()) {
            die(&[
                b"fiber '",
                block.name().as_bytes(),
                b"' cannot be unwound: its scope has a fiber on another scheduler of this thread, or a \
                  callback that this thread holds, which cannot end while this scheduler is dropped; \
                  drop that scheduler, or the callback, first\n",
            ]);
        }
    }

    /// Whether a scope has children on other threads.
    fn any_children_elsewhere(&self) -> bool {
        // A pass misses a child that it has not come to yet, and that starts one in a scope which it has
        // passed, and ends. That scope is an outer one, so as many passes as there are scopes miss none.
        let scopes: usize = self.blocks().map(|block| block.scopes.borrow().len()).sum();
        (0..scopes).any(|_| self.blocks().any(Block::has_children_elsewhere))
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        (0..).map_while(|index| self.at(index))
    }

    /// Waits until the scope of the running fiber, which is cancelled, has no children.
    pub(crate) fn wait_for_children(&self, children: &Children) {
        while children.any() {
            self.unwind_suspended();
            if children.any() {
                self.end_children();
            }
        }
    }

    /// Unwinds the fibers that are suspended. May be called by a fiber that is being unwound, and
    /// then leaves out that one and those that wait in this function: they are cancelled already.
    /// Leaves out fibers from whose stacks others borrow, and returns whether there are any.
    pub(in crate::core) fn unwind_suspended(&self) -> bool {
        let _entered = Entered::for_teardown(self);
        let mut left_out = false;
        let mut index = 0;
        while let Some(block) = self.at(index) {
            index += 1;
            if matches!(block.state.get(), State::Free | State::Cancelled) {
                continue;
            }
            if block.has_children() {
                left_out = true;
                continue;
            }
            self.unwind(block);
        }
        left_out
    }

    /// Unwinds a fiber, which is neither free nor cancelled, for one that has entered for teardown.
    fn unwind(&self, block: &Block) {
        assert!(!matches!(block.state.get(), State::Free | State::Cancelled));
        block.state.set(State::Cancelled);
        CURRENT.with(|current| current.running.set(block));
        // SAFETY: a block that is neither free nor cancelled holds a loaded execution; it is
        // suspended, because no `run` is under way, and the fibers whose stacks this runs on
        // are cancelled. Where others borrow from its stack, it runs the closure of a scope, and
        // `scope` keeps all but the frames of that closure until they have ended.
        unsafe { block.switch.unwind() };
        CURRENT.with(|current| current.running.set(std::ptr::null()));
        self.retire(block);
    }

    /// Whether the fiber is cancelled, so that its wait must return without suspending it.
    ///
    /// A cancelled fiber never suspends again. Destructors that run while it unwinds go on without
    /// having waited, because another panic would abort the process. Elsewhere (the fiber has
    /// caught the unwinding) the wait throws it again. If the fiber does not end in spite of both,
    /// the process ends with a message instead of hanging.
    ///
    /// The count of panics is the thread's, so that it may be another fiber that panics: then the
    /// fiber goes on, and is thrown nothing.
    #[inline]
    pub(in crate::core) fn returns_at_once(block: &Block) -> bool {
        block.state.get() == State::Cancelled && Core::refuse_to_wait(block)
    }

    #[cold]
    #[inline(never)]
    fn refuse_to_wait(block: &Block) -> bool {
        let unwinds = std::thread::panicking();
        let (count, limit) = if unwinds {
            (&block.futile_waits, MAX_FUTILE_WAITS)
        } else {
            (&block.defiance, MAX_DEFIANCE)
        };
        count.set(count.get() + 1);
        if count.get() > limit {
            die(&[
                b"fiber '",
                block.name().as_bytes(),
                b"' does not end although its scheduler was dropped: its destructors must not wait \
                  in a loop, and a loop must not catch the unwinding\n",
            ]);
        }
        if !unwinds {
            std::panic::resume_unwind(Box::new(Cancellation));
        }
        true
    }
}

/// Drops values of users where a panic of a destructor must not escape.
fn drop_quietly(messages: Vec<Message>) {
    for message in messages {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(message))) {
            drop_payload(payload);
        }
    }
}

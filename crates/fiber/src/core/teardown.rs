//! How the fibers of a scheduler that is dropped are unwound.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use primitive::drop_payload;

use crate::abort::die;
use crate::core::Core;
use crate::core::block::{Block, State};
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
        // there, or end; the last one of a scope unparks this thread.
        while self.unwind_suspended() {
            if self.all_have_children() {
                self.check_children_can_end();
                std::thread::park();
            }
        }
        unwound
    }

    /// Whether only fibers are left whose scopes have children.
    fn all_have_children(&self) -> bool {
        let mut blocks = (0..).map_while(|index| self.at(index));
        blocks.all(|block| block.state.get() == State::Free || block.has_children())
    }

    /// Ends the process with a message instead of a wait that never ends: while this thread waits for
    /// fibers of scopes, it runs no other scheduler.
    fn check_children_can_end(&self) {
        let mut blocks = (0..).map_while(|index| self.at(index));
        if let Some(block) = blocks.find(|block| block.has_children_beside()) {
            die(&[
                b"fiber '",
                block.name().as_bytes(),
                b"' cannot be unwound: its scope has a fiber on another scheduler of this thread, or a \
                  callback that this thread holds, which cannot end while this scheduler is dropped; \
                  drop that scheduler, or the callback, first\n",
            ]);
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
            block.state.set(State::Cancelled);
            CURRENT.with(|current| current.running.set(block));
            // SAFETY: a block that is neither free nor cancelled holds a loaded execution; it is
            // suspended, because no `run` is under way, and the fibers whose stacks this runs on
            // are cancelled.
            unsafe { block.switch.unwind() };
            CURRENT.with(|current| current.running.set(std::ptr::null()));
            self.retire(block);
        }
        left_out
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

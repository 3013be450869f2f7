//! How the fibers of a scheduler that is dropped are unwound.
//!
//! A loop ([`Core::close`]) does what can be done next, in this order:
//!
//! 1. It unwinds fibers without children.
//! 2. It unwinds fibers that still run the closures of their scopes. After the closure such a fiber
//!    gives the processor back to the loop: it *lingers*, and goes on when its children have ended.
//! 3. It waits for children on other threads.
//! 4. It ends the process with a message, since nothing else can.
//!
//! So no fiber keeps another from ending: one that lingers is suspended, wherever its stack is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use primitive::drop_payload;

use crate::abort::die;
use crate::core::Core;
use crate::core::block::{Block, Children, State};
use crate::core::current::{CURRENT, Entered};
use crate::core::inbox::Message;
use crate::switch::Resumed;

/// How often a cancelled fiber may catch its own unwinding and wait again before the process is
/// aborted.
const MAX_DEFIANCE: u32 = 64;
/// How many waits of destructors may return at once, in a cancelled fiber, before the process is
/// aborted: they are in a loop that waits for something that cannot happen any more.
const MAX_FUTILE_WAITS: u32 = 1 << 20;

/// The payload thrown in a fiber that waits after its cancellation.
struct Cancellation;

/// What a pass over all fibers has found.
pub(in crate::core) struct Sweep {
    any_unwound: bool,
    /// Whether there are fibers that have to wait for their children.
    any_left: bool,
}

/// What to do with a fiber.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It has ended, or this is called on its stack.
    None,
    Unwind,
    /// For its children.
    Wait,
}

fn next_step(block: &Block) -> Step {
    let waits = match block.state.get() {
        State::Free | State::Cancelled => return Step::None,
        // For the innermost scope, whose closure it has left.
        State::Lingering => block.scopes.borrow().last().is_some_and(|children| children.any()),
        State::Active | State::Notified | State::Parked => block.has_children(),
    };
    if waits { Step::Wait } else { Step::Unwind }
}

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
        while self.unwind_more(None) {}
        unwound
    }

    /// Unwinds what can be unwound, and returns whether anything is left. If there is nothing to unwind,
    /// waits for other threads; without any to wait for, ends the process with a message. The running
    /// fiber, if it is one that calls, waits for these children, and needs no more when they have ended.
    fn unwind_more(&self, awaited: Option<&Children>) -> bool {
        let Sweep { any_unwound, any_left } = self.unwind_suspended();
        let is_left = any_left || awaited.is_some();
        if is_left && !any_unwound && !self.unwind_closures() {
            self.wait_for_other_threads(awaited);
        }
        is_left
    }

    /// Unwinds the fibers that are suspended, and goes on with those that linger without need. May be
    /// called by a fiber that is being unwound, and then leaves that one out. Leaves out fibers from
    /// whose stacks others borrow.
    pub(in crate::core) fn unwind_suspended(&self) -> Sweep {
        let _entered = Entered::for_teardown(self);
        let mut sweep = Sweep { any_unwound: false, any_left: false };
        for block in self.blocks() {
            match next_step(block) {
                Step::None => {}
                Step::Unwind => {
                    self.unwind(block);
                    sweep.any_unwound = true;
                    // It may wait for the children of an outer scope now.
                    sweep.any_left |= block.state.get() == State::Lingering;
                }
                Step::Wait => sweep.any_left = true,
            }
        }
        sweep
    }

    /// Unwinds the fibers with children that still run the closures of their scopes, since these may
    /// hold callbacks that others wait for; `scope` waits for the children after them. Whether there
    /// were any.
    fn unwind_closures(&self) -> bool {
        let _entered = Entered::for_teardown(self);
        let mut any = false;
        for block in self.blocks() {
            let is_suspended =
                !matches!(block.state.get(), State::Free | State::Cancelled | State::Lingering);
            if is_suspended && block.may_hold_children() {
                self.unwind(block);
                any = true;
            }
        }
        any
    }

    /// Waits until a child on another thread has ended. Without any, ends the process with a message
    /// instead of a wait that never ends: this thread runs no other scheduler meanwhile.
    fn wait_for_other_threads(&self, awaited: Option<&Children>) {
        // In this order: what is on this thread only does not change while this looks.
        if self.any_children_elsewhere() {
            return std::thread::park();
        }
        let has_ended = awaited.is_some_and(|children| !children.any());
        if has_ended || self.blocks().any(|block| next_step(block) == Step::Unwind) {
            return;
        }
        if let Some(block) = self.blocks().find(|block| block.has_children()) {
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

    /// Waits until a scope of the running fiber, which is cancelled and has left the scope's closure, has
    /// no children: lets the unwinding of the others go on, and is resumed by it.
    ///
    /// If it `keeps_processor`, the fiber may be inside a destructor while it panics: its scope began, and
    /// ends, while the thread panics. The count of panics belongs to the thread, so this fiber is not
    /// suspended and unwinds the others on its own stack. Otherwise `scope` has caught its closure's panic,
    /// and the fiber lingers even while another one panics.
    pub(crate) fn wait_for_children(
        &self,
        block: &Block,
        children: &Children,
        keeps_processor: bool,
    ) {
        while children.any() {
            if keeps_processor {
                self.unwind_more(Some(children));
            } else {
                block.state.set(State::Lingering);
                // SAFETY: the caller is the running fiber, which `unwind` has resumed, as it alone
                // resumes cancelled fibers; it does so again.
                unsafe { block.switch.suspend() };
            }
        }
    }

    /// Unwinds a suspended fiber until it has ended or lingers, for one that has entered for teardown.
    fn unwind(&self, block: &Block) {
        match block.state.get() {
            State::Free | State::Cancelled => unreachable!("it is not suspended"),
            State::Lingering => {}
            State::Active | State::Notified | State::Parked => block.switch.cancel(),
        }
        block.state.set(State::Cancelled);
        CURRENT.with(|current| current.running.set(block));
        // SAFETY: a block that is neither free nor cancelled holds a loaded execution; it is
        // suspended, because no `run` is under way, and the fibers whose stacks this runs on
        // are cancelled. Where others borrow from its stack, it runs the closure of a scope, and
        // `scope` keeps all but the frames of that closure until they have ended.
        let mut became = unsafe { block.switch.unwind() };
        while became == Resumed::Suspended && block.state.get() == State::Cancelled {
            // SAFETY: as above: it has suspended itself again.
            became = unsafe { block.switch.unwind() };
        }
        CURRENT.with(|current| current.running.set(std::ptr::null()));
        if became == Resumed::Finished {
            self.retire(block);
        }
    }

    /// Whether the fiber is cancelled, so that its wait must return without suspending it.
    ///
    /// A cancelled fiber suspends only to linger. Destructors that run while it unwinds go on without
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

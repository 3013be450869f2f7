//! The switch on x86-64: two stack pointers change places, and the processor jumps.
//!
//! Whoever gives the processor away pushes where to go on and the two registers that the compiler
//! will not let us name as lost; everything else that it wants to keep, it saves around the switch
//! by itself, which is why [`Switch::swap`] must be inlined. One word holds the stack pointer of
//! the side that does not run:
//!
//! ```text
//!   push rbp, rbx, address of 2      fiber's stack, suspended      scheduler's stack, waiting
//!   exchange rsp with the word       | 2: | rbx | rbp | ..         | 2: | rbx | rbp | ..
//!   pop address, jmp                   ^ the word, or                ^ the word, while the
//!   2: pop rbx, rbp                      rsp while it runs             fiber runs
//! ```
//!
//! There is no `call` and no `ret`: what the return predictor knows about either side stays true as
//! far as it was, and calls and returns of the fiber pair up among themselves.
//!
//! A new stack begins as if it had been suspended in front of [`begin`]:
//!
//! ```text
//!   | begin | start::<F> | &Switch | 0 | the closure .. |  top
//!     ^ the word                     ^ where a return address would be: backtraces end here
//! ```

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{MAX_INLINE_CLOSURE_BYTES, Resumed};
use crate::stack::Stack;

/// How far an execution has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is loaded, or what was has finished.
    Ended,
    /// The closure waits on its stack.
    Loaded,
    /// The closure runs or is suspended.
    Begun,
    /// As [`Begun`](Phase::Begun); it is to unwind as soon as it runs again.
    Unwinding,
}

/// What a suspended execution is thrown when it is to end.
struct Unwind;

/// What ended the closure, when it was not its own return.
type Payload = Box<dyn Any + Send>;

/// The way out of a running execution, back to whoever resumed it.
#[derive(Clone, Copy)]
pub(crate) struct Exit(*const Switch);

impl Exit {
    /// No way out.
    pub(crate) const NONE: Exit = Exit(std::ptr::null());

    /// Gives the processor back to whoever called `resume`; returns at the next `resume`.
    ///
    /// # Safety
    /// This is the exit of the execution on whose stack the caller runs.
    #[inline(always)]
    pub(crate) unsafe fn suspend(self) {
        // SAFETY: the switch of a running execution is where `load` found it, says `load`'s caller.
        let switch = unsafe { &*self.0 };
        // SAFETY: the caller runs on this execution's stack, so the word is the resumer's.
        unsafe { switch.swap() };
        if switch.phase.get() == Phase::Unwinding {
            unwind_from_here(switch);
        }
    }
}

#[cold]
#[inline(never)]
fn unwind_from_here(switch: &Switch) {
    // Once: the destructors that run now are not to be thrown another.
    switch.phase.set(Phase::Begun);
    resume_unwind(Box::new(Unwind));
}

/// The suspended or running execution of one fiber, or nothing.
pub(crate) struct Switch {
    /// The stack pointer of the side that does not run: of the execution while it is suspended, of
    /// whoever resumed it while it runs.
    other: Cell<*mut u8>,
    phase: Cell<Phase>,
    /// The closure, until it begins.
    closure: Cell<*mut u8>,
    discard: Cell<unsafe fn(*mut u8)>,
    panic: Cell<Option<Payload>>,
}

impl Switch {
    pub(crate) fn new() -> Switch {
        Switch {
            other: Cell::new(std::ptr::null_mut()),
            phase: Cell::new(Phase::Ended),
            closure: Cell::new(std::ptr::null_mut()),
            discard: Cell::new(discard::<()>),
            panic: Cell::new(None),
        }
    }

    /// Puts `body` at the top of `stack`, to begin with the next `resume`.
    ///
    /// # Safety
    /// Nothing runs on `stack`, it outlives the execution, this `Switch` stays where it is until
    /// the execution has ended, and the previous execution, if any, has finished.
    #[inline]
    pub(crate) unsafe fn load<F: FnOnce() + 'static>(&self, stack: &Stack, body: F) {
        if size_of::<F>() > MAX_INLINE_CLOSURE_BYTES || align_of::<F>() > 16 {
            let body: Box<dyn FnOnce()> = Box::new(body);
            // SAFETY: as promised by the caller.
            unsafe { self.load_small(stack, body) };
        } else {
            // SAFETY: as promised by the caller.
            unsafe { self.load_small(stack, body) };
        }
    }

    /// # Safety
    /// As for [`Switch::load`]; the closure is no larger than [`MAX_INLINE_CLOSURE_BYTES`] and
    /// aligned to 16 at most.
    #[inline]
    unsafe fn load_small<F: FnOnce() + 'static>(&self, stack: &Stack, body: F) {
        let closure = stack.at_top(size_of::<F>().next_multiple_of(16));
        let frame = closure.wrapping_sub(4 * size_of::<usize>()).cast::<usize>();
        let words = [begin as *const () as usize, start::<F> as *const () as usize];
        // SAFETY: the top of a stack has room for a closure of at most `MAX_INLINE_CLOSURE_BYTES`
        // and four words, nothing else uses it, and it is aligned to 16 (`at_top`).
        unsafe {
            closure.cast::<F>().write(body);
            frame.write(words[0]);
            frame.add(1).write(words[1]);
            frame.add(2).cast::<*const Switch>().write(self);
            frame.add(3).write(0);
        }
        self.other.set(frame.cast());
        self.closure.set(closure);
        self.discard.set(discard::<F>);
        self.phase.set(Phase::Loaded);
    }

    /// Runs the loaded execution until it suspends or finishes.
    ///
    /// # Panics
    /// If its closure did.
    ///
    /// # Safety
    /// An execution is loaded and suspended, and the caller is not itself on its stack.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> Resumed {
        // SAFETY: it is suspended, says the caller, so the word is its stack pointer.
        unsafe { self.swap() };
        if self.phase.get() == Phase::Ended { self.finished() } else { Resumed::Suspended }
    }

    #[inline]
    fn finished(&self) -> Resumed {
        if let Some(payload) = self.panic.take() {
            resume_unwind(payload);
        }
        Resumed::Finished
    }

    /// The way out of this execution.
    #[inline(always)]
    pub(crate) fn exit(&self) -> Exit {
        Exit(self)
    }

    /// Ends a suspended execution: unwinds its stack so that destructors run, or drops the closure
    /// when it has not begun. Panics of destructors are swallowed.
    ///
    /// # Safety
    /// As for [`Switch::resume`].
    #[cold]
    pub(crate) unsafe fn unwind(&self) {
        let ended = catch_unwind(AssertUnwindSafe(|| match self.phase.replace(Phase::Ended) {
            Phase::Ended => {}
            Phase::Loaded => {
                // SAFETY: the closure is where `load` put it and has not begun; the phase says that
                // it is gone now.
                unsafe { (self.discard.get())(self.closure.get()) };
            }
            Phase::Begun | Phase::Unwinding => {
                self.phase.set(Phase::Unwinding);
                // SAFETY: as promised by the caller. It ends now: whatever it waits for again is
                // refused by the scheduler.
                while unsafe { self.resume() } == Resumed::Suspended {}
            }
        }));
        if let Err(payload) = ended {
            // The payload's own destructor could panic as well; a few leaked bytes cannot.
            std::mem::forget(payload);
        }
    }

    /// Gives the processor to the other side; returns when it is given back.
    ///
    /// # Safety
    /// The word is the stack pointer of a side that is suspended in this function or about to
    /// begin, and the caller is the side that runs.
    #[inline(always)]
    unsafe fn swap(&self) {
        // SAFETY: the caller's promise. All registers are declared lost but `rsp`, which is back
        // when this returns, and `rbx` and `rbp`, which are saved on the stack; so is, by leaving
        // out `nostack`, everything the compiler keeps below `rsp`.
        unsafe {
            std::arch::asm!(
                "push rbp",
                "push rbx",
                "lea rax, [rip + 2f]",
                "push rax",
                "mov rax, [rdi]",
                "mov [rdi], rsp",
                "mov rsp, rax",
                "pop rax",
                "jmp rax",
                "2:",
                "pop rbx",
                "pop rbp",
                inout("rdi") self.other.as_ptr() => _,
                lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
                clobber_abi("sysv64"),
            );
        }
    }
}

/// The first instructions on a new stack: calls `start` without leaving a way back.
///
/// # Safety
/// The stack pointer is at the words that `load_small` wrote, just behind the address of this.
// SAFETY: pops two of the words, and leaves the third as the return address that `start` begins
// with.
#[unsafe(naked)]
unsafe extern "sysv64" fn begin() {
    std::arch::naked_asm!("pop rax", "pop rdi", "jmp rax")
}

/// Runs a closure from beginning to end.
///
/// # Safety
/// `switch` has a closure of type `F` loaded, and this runs on its stack for the first time.
unsafe extern "sysv64" fn start<F: FnOnce() + 'static>(switch: *const Switch) -> ! {
    // SAFETY: the caller of `load` keeps the switch in place while the execution lasts.
    let switch = unsafe { &*switch };
    switch.phase.set(Phase::Begun);
    // SAFETY: `load` wrote an `F` there; the phase says that it is taken.
    let body = unsafe { switch.closure.get().cast::<F>().read() };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body))
        && !payload.is::<Unwind>()
    {
        switch.panic.set(Some(payload));
    }
    switch.phase.set(Phase::Ended);
    // SAFETY: this is the side that runs, and nothing on this stack is needed any more.
    unsafe { switch.swap() };
    unreachable!("an execution that has ended is not resumed");
}

/// Drops a closure that has not begun.
///
/// # Safety
/// `closure` is an `F` that nobody uses again.
unsafe fn discard<F>(closure: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { closure.cast::<F>().drop_in_place() };
}

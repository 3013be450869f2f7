//! The switch on x86-64: two stack pointers change places, and the processor jumps.
//!
//! The side that gives the processor away pushes the address to continue at and the two registers
//! that the compiler does not accept as clobbers; the compiler saves everything else around the
//! switch, which is why [`swap`] must be inlined. Each execution has a word for its stack pointer
//! while it is suspended, and so has its resumer:
//!
//! ```text
//!   push rbp, rbx, address of 2      fiber's stack, suspended      scheduler's stack, waiting
//!   rsp to one word                  | 2: | rbx | rbp | ..         | 2: | rbx | rbp | ..
//!   rsp from the other                 ^ its word                    ^ RESUMER
//!   pop address, jmp
//!   2: pop rbx, rbp
//! ```
//!
//! There is no `call` and no `ret`: what the return predictor knows about either side stays true as
//! far as it was, and calls and returns of the fiber pair up among themselves.
//!
//! A new stack begins as if it had been suspended in front of [`begin`]:
//!
//! ```text
//!   | begin | start::<F> | &Switch | 0 | the closure .. |  top
//!     ^ its word                     ^ where a return address would be: backtraces end here
//! ```

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use primitive::drop_payload;

use crate::stack::Stack;
use crate::switch::asan::Side;
use crate::switch::{MAX_INLINE_CLOSURE_BYTES, Resumed};

/// How far an execution has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is loaded, or the closure has finished.
    Ended,
    /// The closure waits on its stack.
    Loaded,
    /// The closure runs or is suspended.
    Begun,
    /// As [`Begun`](Phase::Begun); it is to unwind as soon as it runs again.
    Unwinding,
}

/// The payload of the panic that ends a suspended execution.
struct Unwind;

thread_local! {
    /// The stack pointer of the caller of `resume`, while an execution runs.
    static RESUMER: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
    static RESUMER_SIDE: Side = const { Side::new() };
}

#[cold]
#[inline(never)]
fn unwind_from_here(switch: &Switch) {
    // Once: the destructors that run now are not to be thrown another.
    switch.phase.set(Phase::Begun);
    resume_unwind(Box::new(Unwind));
}

/// The suspended or running execution of one fiber, or nothing. What a switch touches comes first.
#[repr(C)]
pub(crate) struct Switch {
    /// The execution's stack pointer, while it is suspended.
    suspended: Cell<*mut u8>,
    phase: Cell<Phase>,
    /// The closure, until it begins.
    closure: Cell<*mut u8>,
    discard: Cell<unsafe fn(*mut u8)>,
    side: Side,
}

impl Switch {
    /// Whether an execution can [hand over](Self::hand_over) to another.
    pub(crate) const HANDS_OVER: bool = true;

    /// Bytes at the beginning that every switch touches.
    #[cfg(test)]
    pub(crate) const HOT_BYTES: usize = std::mem::offset_of!(Switch, closure);

    pub(crate) fn new() -> Switch {
        Switch {
            suspended: Cell::new(std::ptr::null_mut()),
            phase: Cell::new(Phase::Ended),
            closure: Cell::new(std::ptr::null_mut()),
            discard: Cell::new(discard::<()>),
            side: Side::new(),
        }
    }

    /// Puts `body`, from which nothing may unwind, at the top of `stack`, to begin with the next `resume`.
    ///
    /// # Safety
    /// Nothing runs on `stack`, it outlives the execution, this `Switch` stays where it is until
    /// the execution has ended, and the previous execution, if any, has finished.
    #[inline]
    pub(crate) unsafe fn load<F: FnOnce() + 'static>(&self, stack: &Stack, body: F) {
        if const { size_of::<F>() > MAX_INLINE_CLOSURE_BYTES || align_of::<F>() > 16 } {
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
        // SAFETY: the sizes are checked, as the caller promises.
        let closure = unsafe { self.prepare(stack, size_of::<F>(), start::<F>) };
        // SAFETY: room for the closure, which nothing else uses, aligned to 16.
        unsafe { closure.cast::<F>().write(body) };
        self.discard.set(discard::<F>);
        self.phase.set(Phase::Loaded);
    }

    /// Puts what `begin` finds at the top of `stack`, below the room for a closure of so many bytes. Returns
    /// that room.
    ///
    /// # Safety
    /// As for [`Switch::load`]; the closure has at most [`MAX_INLINE_CLOSURE_BYTES`].
    #[inline]
    unsafe fn prepare(&self, stack: &Stack, bytes: usize, start: Start) -> *mut u8 {
        self.side.begin(stack);
        let closure = stack.at_top(bytes.next_multiple_of(16));
        let frame = closure.wrapping_sub(4 * size_of::<usize>()).cast::<usize>();
        let words = [begin as *const () as usize, start as *const () as usize];
        // SAFETY: the top of a stack has room for a closure of at most `MAX_INLINE_CLOSURE_BYTES`
        // and four words, nothing else uses it, and it is aligned to 16 (`at_top`).
        unsafe {
            frame.write(words[0]);
            frame.add(1).write(words[1]);
            frame.add(2).cast::<*const Switch>().write(self);
            frame.add(3).write(0);
        }
        self.suspended.set(frame.cast());
        self.closure.set(closure);
        closure
    }

    /// Runs the loaded execution until it, or one to which it has handed over, suspends or
    /// finishes. The caller knows which one; [`became`](Self::became) returns its state.
    ///
    /// # Safety
    /// An execution is loaded and suspended, the caller is not itself on its stack, and no other
    /// `resume` of the thread is under way, or the caller restores [`RESUMER`] after this one.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) {
        RESUMER_SIDE.with(|side| side.leave_for(&self.side));
        // SAFETY: the execution is suspended, says the caller, so the word is its stack pointer.
        RESUMER.with(|resumer| unsafe { swap(resumer, &self.suspended) });
        RESUMER_SIDE.with(Side::arrive);
    }

    /// The state in which the execution has given the processor back.
    #[inline(always)]
    pub(crate) fn became(&self) -> Resumed {
        if self.phase.get() == Phase::Ended { self.finished() } else { Resumed::Suspended }
    }

    /// Gives the processor back to the caller of `resume`; returns when this execution is resumed
    /// or handed over to.
    ///
    /// # Safety
    /// The caller runs on this execution's stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.hand_over(None) };
    }

    /// Gives the processor to another execution, which is then the one that `resume` runs, or back to the
    /// caller of `resume`; returns as [`suspend`](Self::suspend) does.
    ///
    /// # Safety
    /// The caller runs on this execution's stack, and `next` is loaded and suspended, or is this
    /// one.
    #[inline(always)]
    pub(crate) unsafe fn hand_over(&self, next: Option<&Switch>) {
        let there = match next {
            Some(next) => {
                self.side.leave_for(&next.side);
                &raw const next.suspended
            }
            None => {
                RESUMER_SIDE.with(|side| self.side.leave_for(side));
                RESUMER.with(std::ptr::from_ref)
            }
        };
        // SAFETY: `next` is suspended, so the word is its stack pointer; or it is this one, and the
        // word becomes its stack pointer before it is read. That of the caller of `resume` was written there,
        // and `unwind`, the only one to resume others on an execution's stack, has put it back; it is this
        // thread's.
        unsafe { swap(&self.suspended, &*there) };
        self.side.arrive();
        self.go_on();
    }

    /// What comes first after a suspension.
    #[inline(always)]
    fn go_on(&self) {
        if self.phase.get() == Phase::Unwinding {
            unwind_from_here(self);
        }
    }

    #[cold]
    #[inline(never)]
    fn finished(&self) -> Resumed {
        self.side.end();
        Resumed::Finished
    }

    /// Has the suspended execution unwind its stack when it runs again: see [`unwind`](Self::unwind).
    #[cold]
    pub(crate) fn cancel(&self) {
        if self.phase.get() == Phase::Begun {
            self.phase.set(Phase::Unwinding);
        }
    }

    /// Runs an execution that was [cancelled](Self::cancel), so that its destructors run, until it has
    /// ended or suspends once more. Drops the closure of one that has not begun. Panics of destructors
    /// are swallowed.
    ///
    /// # Safety
    /// As for [`Switch::resume`].
    #[cold]
    pub(crate) unsafe fn unwind(&self) -> Resumed {
        // The caller may be an execution itself, which needs its own way back.
        let resumer = RESUMER.get();
        let side = RESUMER_SIDE.with(Side::saved);
        let ended = match self.phase.get() {
            Phase::Ended => Resumed::Finished,
            Phase::Loaded => {
                self.phase.set(Phase::Ended);
                // SAFETY: the closure is where `load` put it and has not begun; the phase says that
                // it is gone now.
                let discard = || unsafe { (self.discard.get())(self.closure.get()) };
                if let Err(payload) = catch_unwind(AssertUnwindSafe(discard)) {
                    drop_payload(payload);
                }
                Resumed::Finished
            }
            Phase::Begun | Phase::Unwinding => {
                // SAFETY: as promised by the caller.
                unsafe { self.resume() };
                self.became()
            }
        };
        RESUMER.set(resumer);
        RESUMER_SIDE.with(|resumer| resumer.restore(side));
        ended
    }
}

/// Suspends the running side, with its stack pointer in `here`, and continues the side that is
/// suspended with its stack pointer in `there`; returns when `here` is continued.
///
/// # Safety
/// `there` is, when `here` has been written, the stack pointer of a side that is suspended in this
/// function or about to begin, and that is continued only once.
#[inline(always)]
unsafe fn swap(here: &Cell<*mut u8>, there: &Cell<*mut u8>) {
    // SAFETY: the caller's promise. All registers are declared lost but `rsp`, which is back when
    // this returns, and `rbx` and `rbp`, which are saved on the stack; so is, by leaving out
    // `nostack`, everything the compiler keeps below `rsp`.
    unsafe {
        std::arch::asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdi], rsp",
            "mov rsp, [rsi]",
            "pop rax",
            "jmp rax",
            "2:",
            "pop rbx",
            "pop rbp",
            inout("rdi") here.as_ptr() => _,
            inout("rsi") there.as_ptr() => _,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

/// The first instructions on a new stack: calls `start` without leaving a way back.
///
/// # Safety
/// The stack pointer is at the words that `prepare` wrote, just after the address of this.
// SAFETY: pops two of the words, and leaves the third as the return address that `start` begins
// with.
#[unsafe(naked)]
unsafe extern "sysv64" fn begin() {
    std::arch::naked_asm!("pop rax", "pop rdi", "jmp rax")
}

/// Runs the closure of an execution: [`start`], of its type.
type Start = unsafe extern "sysv64" fn(*const Switch) -> !;

/// Runs a closure from beginning to end.
///
/// # Safety
/// `switch` has a closure of type `F` loaded, and this runs on its stack for the first time.
unsafe extern "sysv64" fn start<F: FnOnce() + 'static>(switch: *const Switch) -> ! {
    // SAFETY: the caller of `load` keeps the switch in place while the execution lasts.
    let switch = unsafe { &*switch };
    switch.side.arrive();
    switch.phase.set(Phase::Begun);
    // SAFETY: `load` wrote an `F` there; the phase says that it is taken.
    let body = unsafe { switch.closure.get().cast::<F>().read() };
    // What unwinds out of it, against the contract, ends the process here: this function is not one
    // that may unwind.
    body();
    switch.phase.set(Phase::Ended);
    // SAFETY: this is the execution's stack, and nothing on it is needed any more.
    unsafe { switch.suspend() };
    unreachable!("an execution that has ended is not resumed");
}

/// Drops a closure that has not begun.
///
/// # Safety
/// `closure` is an `F` that is not used again.
unsafe fn discard<F>(closure: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { closure.cast::<F>().drop_in_place() };
}

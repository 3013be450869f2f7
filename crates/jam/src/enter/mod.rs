//! Calling a jam, and leaving it early.
//!
//! [`run`] notes where the stack is, in a [`Mark`], and calls the entry. If the jam panics, or a
//! function of the program that it calls does, [`escape`] goes back to the mark of the innermost run
//! of the thread, past every frame in between. Those are the jam's own, which are plain: destructors
//! in them do not run. Those of the program are at an end when it is called: a function that a jam can
//! call catches its panics first (`symbols/export.rs`).
//!
//! ```text
//!   run                     Mark { stack, outer }        <- innermost mark of the thread
//!   enter_jam               what it has saved            <- Mark::stack
//!   frames of the jam
//!   a function of the program (its body has ended)
//!   escape                  stack := Mark::stack; take back what is saved there; return ESCAPED from enter_jam
//! ```
//!
//! Marks are a list per thread, so runs nest. A Local Function has frames that unwind (Rust, or C compiled
//! with `-fexceptions`), which nothing may step over: so it runs inside [`barrier`], which lists a mark
//! without a place to go back to. The list has no place for runs that take turns: a jam never waits, and
//! neither does a function that it calls, which holds in delegated context. A run that finds at its end
//! that another one has taken its place ends the process, as nothing it could return to is its own.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;

use jam_abi::{Call, Entry};

#[cfg(target_arch = "aarch64")]
use crate::enter::aarch64::{enter_jam, leave_jam};
#[cfg(target_arch = "x86_64")]
use crate::enter::x86_64::{enter_jam, leave_jam};
use crate::error::Panicked;

/// What [`enter_jam`] returns if the jam was left early. Entries return small codes.
const ESCAPED: u32 = u32::MAX;

/// One run: where it goes back to.
struct Mark {
    /// Where [`enter_jam`] has saved the registers; 0 for a barrier.
    stack: Cell<usize>,
    /// The mark of the run around this one.
    outer: *const Mark,
    /// Why it was left early.
    reason: Cell<Option<Box<Panicked>>>,
}

thread_local! {
    /// The innermost run of the thread.
    static INNERMOST: Cell<*const Mark> = const { Cell::new(ptr::null()) };
}

/// Runs a jam; its code, or why it was left early.
///
/// # Safety
/// - `entry` is linked code that stays where it is for the whole run.
/// - `call` is as that code expects it: its signature and the lengths have been compared.
/// - No other fiber of the thread runs before this returns.
#[inline(always)]
pub(crate) unsafe fn run(entry: Entry, call: &mut Call) -> Result<u32, Box<Panicked>> {
    let outer = INNERMOST.get();
    // `escape` alone sets a reason, which is taken below; so there is nothing to drop.
    let mark = ManuallyDrop::new(Mark { stack: Cell::new(0), outer, reason: Cell::new(None) });
    let mark: &Mark = &mark;
    INNERMOST.set(mark);
    // SAFETY: as the caller promises; the mark is alive until `enter_jam` has returned.
    let code = unsafe { enter_jam(entry, call, mark.stack.as_ptr()) };
    if !ptr::eq(INNERMOST.get(), mark) {
        out_of_turn();
    }
    INNERMOST.set(mark.outer);
    if code == ESCAPED { Err(reason_of(mark)) } else { Ok(code) }
}

/// Runs a Local Function, which no [`escape`] leaves: one that is called inside ends the process.
#[inline]
pub(crate) fn barrier<R>(function: impl FnOnce() -> R) -> R {
    /// Takes the mark out of the list again, also while a panic unwinds.
    struct Listed<'m>(&'m Mark);

    impl Drop for Listed<'_> {
        #[inline]
        fn drop(&mut self) {
            if !ptr::eq(INNERMOST.get(), self.0) {
                out_of_turn();
            }
            INNERMOST.set(self.0.outer);
        }
    }

    let mark = Mark { stack: Cell::new(0), outer: INNERMOST.get(), reason: Cell::new(None) };
    INNERMOST.set(&mark);
    let _listed = Listed(&mark);
    function()
}

#[cold]
#[inline(never)]
fn reason_of(mark: &Mark) -> Box<Panicked> {
    mark.reason.take().unwrap_or_default()
}

/// Leaves the innermost jam of this thread for the one that runs it. Nothing that the caller owns is
/// dropped.
///
/// Outside every jam, and in a Local Function, this ends the process: there is nowhere to go.
pub(crate) fn escape(reason: Panicked) -> ! {
    let mark = INNERMOST.get();
    // SAFETY: a mark is alive while it is in the list: `run` takes it out before it returns, and
    // frames of `run` are left in no other way, since jams do not unwind; those of `barrier` take it
    // out in each way.
    let mark = unsafe { mark.as_ref() }.filter(|mark| mark.stack.get() != 0);
    let Some(mark) = mark else { outside(&reason) };
    mark.reason.set(Some(Box::new(reason)));
    #[cfg(address_sanitizer)]
    {
        // SAFETY: as in `sanitizer/asan_interface.h`: frames are about to be left behind.
        unsafe extern "C" {
            fn __asan_handle_no_return();
        }
        // SAFETY: it only changes what AddressSanitizer knows of this stack.
        unsafe { __asan_handle_no_return() };
    }
    // SAFETY: `enter_jam` has saved there what its caller keeps across it, for this run, and its frame is still on this
    // stack below: nothing between has returned through it. What those frames own are plain values.
    unsafe { leave_jam(mark.stack.get(), ESCAPED) }
}

#[cold]
fn outside(reason: &Panicked) -> ! {
    abort(&format!("a jam's panic outside of every jam: {reason}\n"))
}

#[cold]
#[inline(never)]
fn out_of_turn() -> ! {
    abort("a function that a jam called has waited: run jams in delegated context\n")
}

fn abort(message: &str) -> ! {
    // The one message of the crate that is printed, since the process ends here.
    // SAFETY: a system call that reads the message.
    unsafe { libc::write(2, message.as_ptr().cast(), message.len()) };
    std::process::abort()
}

#[cfg(test)]
mod tests;

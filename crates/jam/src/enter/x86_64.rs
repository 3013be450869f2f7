//! Entering and leaving a jam on x86-64, System V calling convention: six registers are the caller's
//! to find unchanged. The control bits of the floating-point units are, too, but jams do not change
//! them; the direction flag is clear at every call and return.
//!
//! ```text
//!   stack      | rbp | rbx | where to go on | (alignment) | frames of the jam
//!                            ^ mark
//! ```

use jam_abi::{Call, Entry};

/// Writes the stack pointer to `mark`, and calls `entry` with `call`. It is part of the function that
/// runs jams, which keeps in registers what the next call needs: only two of them are saved here, the
/// compiler saves what it uses of the others.
///
/// # Safety
/// As for [`run`](super::run).
#[inline(always)]
pub(super) unsafe fn enter_jam(entry: Entry, call: *mut Call, mark: *mut usize) -> u32 {
    let code: u32;
    // SAFETY: the entry keeps the calling convention, with which each register is either declared here or
    // saved; the stack is aligned for a call at the beginning, and so after four words. `leave_jam`
    // goes on at the label with the stack as it is there when the entry returns.
    unsafe {
        std::arch::asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdx], rsp",
            "sub rsp, 8",
            "call rsi",
            "add rsp, 16",
            "2:",
            "pop rbx",
            "pop rbp",
            in("rdi") call,
            in("rsi") entry,
            in("rdx") mark,
            lateout("eax") code,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("C"),
        );
    }
    code
}

/// Returns `code` from the [`enter_jam`] that has written `mark`.
///
/// # Safety
/// Its frame is further up this stack, and no frame in between needs to be left in another way.
// SAFETY: the body is all of the function: it goes on in the frame that is left to.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn leave_jam(mark: usize, code: u32) -> ! {
    std::arch::naked_asm!("mov rsp, rdi", "mov eax, esi", "cld", "ret")
}

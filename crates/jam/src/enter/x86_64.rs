//! Entering and leaving a jam on x86-64, System V calling convention: six registers are the caller's
//! to find unchanged. The control bits of the floating-point units are, too, but jams do not change
//! them; the direction flag is clear at every call and return.

use jam_abi::{Call, Entry};

/// Saves the registers, writes the stack pointer to `mark`, and calls `entry` with `call`.
///
/// # Safety
/// As for [`run`](super::run).
// SAFETY: the body is all of the function: it returns by the calling convention.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter_jam(entry: Entry, call: *mut Call, mark: *mut usize) -> u32 {
    std::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdx], rsp",
        // Seven words are on the stack, with the return address: one more aligns it.
        "sub rsp, 8",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Returns `code` from the [`enter_jam`] that has written `mark`.
///
/// # Safety
/// Its frame is further up this stack, and no frame in between needs to be left in another way.
// SAFETY: the body is all of the function: it returns by the calling convention.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn leave_jam(mark: usize, code: u32) -> ! {
    std::arch::naked_asm!(
        "mov rsp, rdi",
        "mov eax, esi",
        "cld",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

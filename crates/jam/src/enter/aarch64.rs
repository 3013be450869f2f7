//! Entering and leaving a jam on aarch64, AAPCS64: x19 to x28, the frame pointer and the low halves of
//! v8 to v15 are the caller's to find unchanged.

use jam_abi::{Call, Entry};

/// Saves the registers, writes the stack pointer to `mark`, and calls `entry` with `call`.
///
/// # Safety
/// As for [`run`](super::run).
// SAFETY: the body is all of the function: it returns by the calling convention.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter_jam(entry: Entry, call: *mut Call, mark: *mut usize) -> u32 {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-160]!",
        "mov x29, sp",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x2]",
        "mov x9, x0",
        "mov x0, x1",
        "blr x9",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #160",
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
        "mov sp, x0",
        "mov w0, w1",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #160",
        "ret",
    )
}

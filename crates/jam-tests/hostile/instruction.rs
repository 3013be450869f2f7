//! Executes an instruction that raises a signal.

/// An illegal one (0), a breakpoint (1), a system call of 32-bit programs (2).
pub fn instruction(which: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: there is none: it is what executors are for.
    unsafe {
        match which {
            0 => core::arch::asm!("ud2"),
            1 => core::arch::asm!("int3"),
            _ => core::arch::asm!("int 0x80", inout("eax") 20 => _),
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: there is none: it is what executors are for.
    unsafe {
        match which {
            0 => core::arch::asm!("udf #0"),
            _ => core::arch::asm!("brk #0"),
        }
    }
    which
}

//! Makes a system call.

/// Number and three arguments.
pub fn system_call(call: [u64; 4]) -> u64 {
    let [number, first, second, third] = call;
    let result: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: there is none: it is what executors are for.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first, in("rsi") second, in("rdx") third,
            out("rcx") _, out("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: there is none: it is what executors are for.
    unsafe {
        core::arch::asm!(
            "svc #0", in("x8") number, inlateout("x0") first => result, in("x1") second,
            in("x2") third,
        );
    }
    result
}

//! Leaves registers and flags in a state that would disturb the code that runs next, or tell it something.

/// Returns with vectors full of a pattern, and rounding, direction, alignment checks and segments
/// changed; also the bases of segments, if `writes_bases` is 1.
pub fn leave_registers([pattern, writes_bases]: [u64; 2]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: there is none: it is what executors are for.
    unsafe {
        let control = 0x7f80u32;
        core::arch::asm!(
            "movq xmm0, {0}", "movq xmm5, {0}", "movq xmm15, {0}", "mov r8, {0}", "mov r11, {0}",
            "ldmxcsr [{1}]", "fld1",
            in(reg) pattern, in(reg) &control,
            out("xmm0") _, out("xmm5") _, out("xmm15") _, out("r8") _, out("r11") _,
        );
        core::arch::asm!(
            "mov ds, {0:e}", "mov es, {0:e}", "mov fs, {0:e}", "mov gs, {0:e}", in(reg) 0x2bu64,
        );
        if writes_bases != 0 {
            core::arch::asm!("wrfsbase {0}", "wrgsbase {0}", in(reg) pattern);
        }
        // Onto the stack, deep below.
        let stack = core::hint::black_box([pattern; 512]);
        core::arch::asm!("movq xmm7, {0}", "pushfq", "or dword ptr [rsp], 0x40400", "popfq", in(reg) stack[9]);
    }
    pattern
}

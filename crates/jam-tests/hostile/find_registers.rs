//! Looks for what a jam before it has left.

/// What is in registers and on the stack that this jam did not put there; 0 for nothing. `reads_bases`
/// is 1 where jams can read the bases of segments.
pub fn find_registers(reads_bases: u64) -> u64 {
    let mut found = 0u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads registers, and its own stack below its frame.
    unsafe {
        let (a, b, c, d, flags, stack): (u64, u64, u64, u64, u64, u64);
        let mut control = 0u32;
        core::arch::asm!(
            "movq {0}, xmm0", "movq {1}, xmm5", "movq {2}, xmm15", "movq {3}, xmm7",
            "pushfq", "pop {4}", "mov {5}, rsp", "stmxcsr [{6}]",
            out(reg) a, out(reg) b, out(reg) c, out(reg) d, out(reg) flags, out(reg) stack,
            in(reg) &mut control,
        );
        found |= a | b | c | d | flags & 0x40400 | u64::from(control ^ 0x1f80);
        let (ds, es, fs, gs): (u64, u64, u64, u64);
        core::arch::asm!(
            "mov {0}, ds", "mov {1}, es", "mov {2}, fs", "mov {3}, gs",
            out(reg) ds, out(reg) es, out(reg) fs, out(reg) gs,
        );
        found |= ds | es | fs | gs;
        if reads_bases != 0 {
            let (fs, gs): (u64, u64);
            core::arch::asm!("rdfsbase {0}", "rdgsbase {1}", out(reg) fs, out(reg) gs);
            found |= fs | gs;
        }
        // Below the words that the instructions above have pushed.
        for word in 16..1024 {
            found |= ((stack - 8 * word) as *const u64).read_volatile();
        }
    }
    found
}

//! Changes its own code.

/// Writes over a function of its own.
pub fn self_modify() -> u64 {
    let code = victim as *const () as *mut u8;
    // SAFETY: there is none: it is what executors are for.
    unsafe { code.write_volatile(code.read_volatile() ^ 1) };
    victim()
}

#[inline(never)]
fn victim() -> u64 {
    core::hint::black_box(7)
}

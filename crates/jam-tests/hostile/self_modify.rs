//! Changes its own code.

/// Writes over a function of its own, and calls it as it was: only the write can end the jam.
pub fn self_modify() -> u64 {
    let code = victim as *const () as *mut u8;
    // SAFETY: there is none: it is what executors are for.
    unsafe {
        let byte = code.read_volatile();
        code.write_volatile(byte ^ 1);
        code.write_volatile(byte);
    }
    victim()
}

#[inline(never)]
fn victim() -> u64 {
    core::hint::black_box(7)
}

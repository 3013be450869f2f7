//! Runs data of its own.

#[cfg(target_arch = "x86_64")]
static RETURN: [u8; 4] = [0xc3; 4];
#[cfg(target_arch = "aarch64")]
static RETURN: [u8; 4] = [0xc0, 0x03, 0x5f, 0xd6];

/// Runs an instruction on the stack (0), or in read-only data (else).
pub fn run_data(place: u64) -> u64 {
    let stack = core::hint::black_box(RETURN);
    let start = if place == 0 { stack.as_ptr() } else { RETURN.as_ptr() };
    let start = core::hint::black_box(start);
    // SAFETY: there is none: it is what executors are for.
    unsafe { core::mem::transmute::<*const u8, extern "C" fn()>(start)() };
    1
}

//! Makes code of data, and runs it.

jam::property! {
    pub struct Scratch = "gossamer.Scratch@1";
}

#[cfg(target_arch = "x86_64")]
const RETURN: &[u8] = &[0xc3];
#[cfg(target_arch = "aarch64")]
const RETURN: &[u8] = &[0xc0, 0x03, 0x5f, 0xd6];

/// Runs an instruction in the scratch (0), on the stack (1), or in read-only data (2).
pub fn run_data(scratch: &mut Scratch, place: u64) -> u64 {
    let mut stack = [0; 16];
    let place = match place {
        0 => jam::scratch(scratch),
        _ => &mut stack,
    };
    let start = if place.is_empty() {
        RETURN.as_ptr()
    } else {
        place[..RETURN.len()].copy_from_slice(RETURN);
        place.as_ptr()
    };
    let start = core::hint::black_box(start);
    // SAFETY: there is none: it is what executors are for.
    unsafe { core::mem::transmute::<*const u8, extern "C" fn()>(start)() };
    1
}

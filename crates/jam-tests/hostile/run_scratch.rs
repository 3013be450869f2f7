//! Makes code in its scratch, and runs it.

jam::property! {
    pub struct Scratch = "gossamer.Scratch@1";
}

#[cfg(target_arch = "x86_64")]
const RETURN: &[u8] = &[0xc3];
#[cfg(target_arch = "aarch64")]
const RETURN: &[u8] = &[0xc0, 0x03, 0x5f, 0xd6];

/// Runs an instruction at the start of the scratch.
pub fn run_scratch(scratch: &mut Scratch) -> u64 {
    let place = jam::scratch(scratch);
    place[..RETURN.len()].copy_from_slice(RETURN);
    let start = core::hint::black_box(place.as_ptr());
    // SAFETY: there is none: it is what executors are for.
    unsafe { core::mem::transmute::<*const u8, extern "C" fn()>(start)() };
    1
}

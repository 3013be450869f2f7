//! The captured values of a delegated closure, as bytes.
//!
//! A closure is named, not sent, so it must capture nothing; then it has no bytes, and an instance of
//! it can be made from its type alone. With the `nightly` feature a closure may capture values that
//! hold no reference ([`NoRef`](crate::NoRef)); their bytes travel in front of the arguments.

use std::mem::MaybeUninit;

use crate::wire::copy::STACK_BYTES;

/// The most bytes that a delegated closure can capture (with the `nightly` feature).
pub(crate) const MAX_CAPTURE: usize = STACK_BYTES;

/// Hands the bytes of a closure's captured values to `send`, and forgets the closure.
#[inline(always)]
pub(crate) fn with_capture<I, R>(closure: I, send: impl FnOnce(&[u8]) -> R) -> R {
    let closure = MaybeUninit::new(closure);
    let mut bytes = [0; MAX_CAPTURE];
    let bytes = &mut bytes[..size_of::<I>()];
    // SAFETY: both are valid for the size of the closure and distinct. An opaque copy gives
    // padding, which has no value in Rust, whatever the memory holds.
    unsafe { copy_frozen(bytes.as_mut_ptr(), closure.as_ptr().cast(), bytes.len()) };
    send(bytes)
}

/// # Safety
/// `to` and `from` are valid for `len` bytes and do not overlap.
#[inline(always)]
unsafe fn copy_frozen(to: *mut u8, from: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for both runs; the direction flag is clear by the ABI.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller vouches for both runs.
    unsafe {
        std::arch::asm!(
            "2: ldrb {byte:w}, [{from}], #1", "strb {byte:w}, [{to}], #1",
            "subs {len}, {len}, #1", "b.ne 2b",
            byte = out(reg) _, from = inout(reg) from => _, to = inout(reg) to => _,
            len = inout(reg) len => _, options(nostack)
        );
    }
}

/// Makes the closure whose bytes these are.
///
/// # Safety
/// `bytes` are all the bytes of one closure of type `F`, made by [`with_capture`], of which no
/// other instance is made. With no bytes that is only what an honest sender did: any other may name
/// a closure that it never held. A value without bytes can be made from its type all the same, and
/// the tokens that it may hold are warned of ([`Delegable`](crate::Delegable)).
#[inline(always)]
pub(crate) unsafe fn rebuild<F>(bytes: &[u8]) -> F {
    let mut closure = MaybeUninit::<F>::uninit();
    // SAFETY: `bytes` is exactly as long as `F` (split off so), and the caller vouches for them.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), closure.as_mut_ptr().cast(), bytes.len());
        closure.assume_init()
    }
}

//! Reads memory that it was not given.

/// The word at an address.
pub fn peek(address: u64) -> u64 {
    // SAFETY: there is none: it is what executors are for.
    unsafe { (address as *const u64).read_volatile() }
}

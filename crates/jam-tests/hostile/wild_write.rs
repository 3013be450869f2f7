//! Writes to memory that it was not given.

/// Writes a word at an address.
pub fn wild_write(address: u64) -> u64 {
    // SAFETY: there is none: it is what executors are for.
    unsafe { (address as *mut u64).write_volatile(0x6a61_6d21) };
    address
}

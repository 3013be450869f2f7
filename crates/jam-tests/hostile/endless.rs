//! Never ends.

/// Loops.
pub fn endless() -> u64 {
    let mut turns = 0u64;
    loop {
        turns = core::hint::black_box(turns.wrapping_add(1));
    }
}

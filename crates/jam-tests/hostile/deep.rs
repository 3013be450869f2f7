//! Uses more and more stack.

/// Calls itself so often.
pub fn deep(levels: u64) -> u64 {
    down(levels)
}

#[inline(never)]
fn down(levels: u64) -> u64 {
    let frame = core::hint::black_box([levels; 32]);
    if levels == 0 { 0 } else { down(levels - 1) + core::hint::black_box(frame)[31] - levels + 1 }
}

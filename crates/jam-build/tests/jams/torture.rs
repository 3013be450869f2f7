//! Everything that a linker of jams may trip over: tables, vtables, function pointers, a jump table,
//! SIMD constants, a large frame, division of 128 bits, atomics, formatting, bounds checks, an import
//! by value and by address.

use core::fmt::{self, Write};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use jam::Context;

jam::plain! {
    /// What selects the paths.
    pub struct TortureArgs {
        /// An index into the tables; 16 and more are out of bounds.
        pub index: u64,
        /// A divisor.
        pub divisor: u64,
    }
}

jam::import! {
    /// The remainder of a division, by the receiver.
    fn remainder(dividend: f64, divisor: f64) -> f64;
    /// The address of this import is taken.
    fn triple(value: u64) -> u64;
}

static TABLE: [u32; 16] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3];

trait Operation {
    fn apply(&self, value: u64) -> u64;
}

struct Rotated(u64);

struct Scaled(u64);

impl Operation for Rotated {
    #[inline(never)]
    fn apply(&self, value: u64) -> u64 {
        value.rotate_left(7) ^ self.0
    }
}

impl Operation for Scaled {
    #[inline(never)]
    fn apply(&self, value: u64) -> u64 {
        value.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.0)
    }
}

static OPERATIONS: [&(dyn Operation + Sync); 2] = [&Rotated(11), &Scaled(22)];

static FUNCTIONS: [fn(u64) -> u64; 4] = [increment, times_three, flip, triple];

#[inline(never)]
fn increment(value: u64) -> u64 {
    value.wrapping_add(1)
}

#[inline(never)]
fn times_three(value: u64) -> u64 {
    value.wrapping_mul(3)
}

#[inline(never)]
fn flip(value: u64) -> u64 {
    value ^ 0xff
}

#[inline(never)]
fn jump(value: u64) -> u64 {
    match value {
        0 => 17,
        1 => value + 5,
        2 => increment(value),
        3 => times_three(value + 9),
        4 => flip(value),
        5 => u64::from(value.count_ones()),
        6 => value << 3,
        7 => !value,
        8 => value / 7,
        _ => 99,
    }
}

/// Names, which a match of text compares.
#[inline(never)]
fn number(name: &str) -> u64 {
    match name {
        "jam says zero, at some length" => 1,
        "jam says one, at another length" => 2,
        _ => 3,
    }
}

#[inline(never)]
fn large_frame(payload: &[u8]) -> u64 {
    let mut frame = [0_u8; 1 << 15];
    for (index, byte) in payload.iter().enumerate() {
        frame[index % (1 << 15)] ^= *byte;
    }
    black_box(&mut frame);
    frame.iter().map(|byte| u64::from(*byte)).sum()
}

#[inline(never)]
fn weighted(payload: &[u8]) -> f64 {
    let weigh = |four: &[u8]| {
        f64::from(four[0]) * 1.5
            + f64::from(four[1]) * 2.5
            + f64::from(four[2]) * 3.5
            + f64::from(four[3])
    };
    payload.chunks_exact(4).map(weigh).sum()
}

struct Line {
    bytes: [u8; 128],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Returns a number in which all paths take part, and logs it.
pub fn torture(cx: &Context<'_>, args: TortureArgs, payload: &[u8]) -> i64 {
    let index = args.index as usize;
    let mut result = u64::from(TABLE[index]);
    result = result.wrapping_add(OPERATIONS[index & 1].apply(result));
    result = result.wrapping_add(FUNCTIONS[index & 3](result));
    result = result.wrapping_add(jump(args.index));
    result = result.wrapping_add(large_frame(payload));
    result = result.wrapping_add(remainder(weighted(payload), 1000.0) as u64);
    result = result.wrapping_add(number(black_box("jam says one, at another length")));
    let counter = black_box(AtomicU64::new(result));
    result = counter.fetch_add(args.index, Ordering::AcqRel).rotate_left(1);
    let dividend = (u128::from(result) << 64) | 12345;
    result = (dividend / (u128::from(args.divisor) << 17 | 3)) as u64;
    let mut line = Line { bytes: [0; 128], len: 0 };
    if write!(line, "jam says {result} of {index:x} for {}", cx.sender()).is_ok() {
        cx.log(core::str::from_utf8(&line.bytes[..line.len]).unwrap_or("not text"));
    }
    (result >> 1) as i64
}

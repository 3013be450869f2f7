//! The type of a record has padding, whose bytes are undefined.

use gossamer::Segment;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Quote {
    price: u64,
    size: u32,
}

fn open(prices: &Segment) {
    prices.record::<Quote>(0).unwrap();
}

fn main() {}

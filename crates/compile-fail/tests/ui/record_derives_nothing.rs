//! The type of a record derives none of the traits that say that it is plain data.

use gossamer::Segment;

struct Quote {
    price: u64,
}

fn open(prices: &Segment) {
    prices.record::<Quote>(0).unwrap();
}

fn main() {}

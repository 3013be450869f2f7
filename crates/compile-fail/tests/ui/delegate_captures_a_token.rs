//! A value of size zero that proves something about this host, which the closure captures.

use gossamer::{Trust, delegate};

/// This processor has AVX2.
#[derive(Clone, Copy)]
struct HasAvx2(());

fn sum(_: HasAvx2, values: &[u64]) -> u64 {
    values.iter().sum()
}

fn main() {
    let values: Trust<Vec<u64>> = gossamer::entrust(vec![1, 2]);
    let token = HasAvx2(());
    delegate!(values, [] |values| sum(token, values));
}

//! The list of values says what is sent, so it cannot be left out.

use gossamer::{Trust, Trustee, delegate};

fn forget(counter: &Trust<u64>, by: u64) -> u64 {
    delegate!(counter => apply_then, |n| *n += by, |()| {});
    delegate!(counter, move |n| *n += by);
    delegate!(counter, |n| *n + by)
}

fn visit(trustee: Trustee, level: u32) {
    delegate!(trustee => visit, || println!("{level}"));
}

fn main() {}

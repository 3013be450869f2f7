//! A counter that fibers on all hosts of the rack share: the program of the README. Try
//! `cargo run --release -p gossamer-rack --example counter -- --hosts 2 --threads 2`.

use gossamer::{Rack, RackError, Trust, spawn_with};

fn main() -> Result<(), RackError> {
    Rack::from_args()?.run(|| {
        let counter: Trust<u64> = gossamer::entrust(0);
        let add = |counter: Trust<u64>| (0..1000).for_each(|_| counter.apply(|n| *n += 1));
        let fibers: Vec<_> = (0..4).map(|_| spawn_with(add, counter.clone())).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        println!("{}", counter.apply(|n| *n));
    })
}

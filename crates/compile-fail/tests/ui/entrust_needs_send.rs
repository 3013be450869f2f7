//! A value that belongs to its thread cannot be spread.
use std::rc::Rc;

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(Rc::new(0u64));
            drop(counter);
        })
        .unwrap();
}

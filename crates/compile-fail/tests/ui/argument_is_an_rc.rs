//! An argument that belongs to its thread.
use std::rc::Rc;

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            counter.apply_with(|c, n: Rc<u64>| *c += *n, Rc::new(5));
        })
        .unwrap();
}

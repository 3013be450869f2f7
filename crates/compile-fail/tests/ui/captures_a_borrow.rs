//! A reference to a local variable is used in the closure: the message is about the borrow, not the closure.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n = 5u64;
            let by = &n;
            counter.apply(|c| *c += *by);
        })
        .unwrap();
}

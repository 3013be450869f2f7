//! Heap data has a pointer inside.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n = Box::new(5u64);
            counter.apply(move |c| *c += *n);
        })
        .unwrap();
}

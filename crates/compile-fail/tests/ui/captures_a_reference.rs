//! A local variable that is used in the closure is captured by reference.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n = 5u64;
            counter.apply(|c| *c += n);
        })
        .unwrap();
}

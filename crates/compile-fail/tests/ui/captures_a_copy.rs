//! A number that is copied into the closure would not cross the rack.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n = 5u64;
            counter.apply(move |c| *c += n);
        })
        .unwrap();
}

//! A request has room for a limited capture.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let many = [5u64; 100];
            counter.apply(move |c| *c += many[0]);
        })
        .unwrap();
}

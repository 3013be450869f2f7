//! One of two values is passed, the other captured.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let (n, m) = (5u64, 6u64);
            counter.apply_with(move |c, n| *c += n * m, n);
        })
        .unwrap();
}

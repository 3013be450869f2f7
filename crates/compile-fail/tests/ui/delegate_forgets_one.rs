//! `delegate!` with a value that the list forgets.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let (n, m) = (5u64, 6u64);
            gossamer::delegate!(counter, [n] |c| *c += n * m);
        })
        .unwrap();
}

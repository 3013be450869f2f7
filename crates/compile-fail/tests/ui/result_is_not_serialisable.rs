//! A result that serde does not know.
struct Count(u64);

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let count = counter.apply(|c| Count(*c));
            assert_eq!(count.0, 0);
        })
        .unwrap();
}

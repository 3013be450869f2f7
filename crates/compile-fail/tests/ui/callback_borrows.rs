//! A callback runs later, when what it borrows may be gone.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let mut seen = 0;
            counter.apply_then(|c| *c, |c| seen = c);
            assert_eq!(seen, 0);
        })
        .unwrap();
}

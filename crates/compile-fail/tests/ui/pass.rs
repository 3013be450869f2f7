//! What is right compiles and runs.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n = 5u64;
            counter.apply(|c| *c += 1);
            counter.apply_with(|c, n| *c += n, n);
            assert_eq!(gossamer::delegate!(counter, [n] |c| *c + n), 11);
            let latch = gossamer::entrust(0u64);
            let value = gossamer::spawn(move || latch.apply(|l| *l)).join().unwrap();
            counter.apply_then(|c| *c, move |c| assert_eq!(c + value, 6));
            let mut seen = 0;
            gossamer::scope(|s| counter.apply_then(|c| *c, s.callback(|c| seen = c)));
            assert_eq!(seen, 6);
        })
        .unwrap();
}

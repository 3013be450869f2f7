//! With `NoRef`, plain data may be captured.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let (n, pair) = (5u64, [(1u8, true), (2, false)]);
            counter.apply(move |c| *c += n);
            counter.apply(move |c| *c += u64::from(pair[1].0));
            counter.apply_with(move |c, m: u64| *c += n * m, 2);
            assert_eq!(counter.apply(|c| *c), 17);
            let (maybe, far) = (Some(25u32), [7u64; 9]);
            counter.apply_then(move |c| *c + u64::from(maybe.unwrap()), |c| assert_eq!(c, 42));
            assert_eq!(counter.apply(move |c| *c + far.iter().sum::<u64>()), 80);
        })
        .unwrap();
}

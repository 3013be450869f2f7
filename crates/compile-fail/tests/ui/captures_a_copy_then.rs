//! As with `apply`.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n = 5u64;
            counter.apply_then(move |c| *c += n, |()| {});
        })
        .unwrap();
}

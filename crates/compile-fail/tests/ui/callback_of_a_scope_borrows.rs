//! A callback of a scope may run until the scope ends, when what its closure owns is gone.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            gossamer::scope(|s| {
                let mut seen = 0;
                counter.apply_then(|c| *c, s.callback(|c| seen = c));
            });
        })
        .unwrap();
}

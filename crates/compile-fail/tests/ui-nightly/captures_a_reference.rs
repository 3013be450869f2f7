//! A reference means nothing elsewhere.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n: &u64 = &5;
            counter.apply(move |c| *c += *n);
        })
        .unwrap();
}

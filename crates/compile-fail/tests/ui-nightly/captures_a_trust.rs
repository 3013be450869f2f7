//! A trust is counted, so it travels as an argument.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let one = gossamer::entrust(0u64);
            let other = gossamer::entrust(0u64);
            one.apply(move |_| other.apply_then(|o| *o += 1, |()| {}));
        })
        .unwrap();
}

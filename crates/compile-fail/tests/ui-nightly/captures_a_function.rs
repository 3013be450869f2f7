//! Code has another address in every process.
fn double(n: u64) -> u64 {
    n * 2
}

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let f: fn(u64) -> u64 = double;
            counter.apply(move |c| *c = f(*c));
        })
        .unwrap();
}

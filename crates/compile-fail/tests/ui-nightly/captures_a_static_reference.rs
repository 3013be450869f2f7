//! Neither does one that lives for ever.
static FIVE: u64 = 5;

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let n: &u64 = &FIVE;
            counter.apply(move |c| *c += *n);
        })
        .unwrap();
}

//! `launch` on a property that is no latch.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            counter.launch(|c| *c += 1);
        })
        .unwrap();
}

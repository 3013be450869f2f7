//! An argument that serde does not know.
struct Step(u64);

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            counter.apply_with(|c, step: Step| *c += step.0, Step(5));
        })
        .unwrap();
}

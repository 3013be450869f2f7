//! A borrowed string as an argument.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let text = gossamer::entrust(String::new());
            text.apply_with(|t, more: &str| t.push_str(more), "more");
        })
        .unwrap();
}

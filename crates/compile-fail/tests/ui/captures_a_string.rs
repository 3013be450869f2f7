//! Owned data that is moved into the closure.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let text = gossamer::entrust(String::new());
            let more = String::from("more");
            text.apply(move |t| t.push_str(&more));
        })
        .unwrap();
}

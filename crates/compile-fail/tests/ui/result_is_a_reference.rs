//! A reference to the property must not leave it.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let text = gossamer::entrust(String::new());
            let inside: &String = text.apply(|t| &*t);
            assert!(inside.is_empty());
        })
        .unwrap();
}

//! A closure started elsewhere, with owned data moved into it.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let me = gossamer::local_trustee();
            let text = String::from("more");
            gossamer::spawn_on(me, move || text.len()).join().unwrap();
        })
        .unwrap();
}

//! `delegate!` with a borrowed value in its list.

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let text = gossamer::entrust(String::new());
            let more = "more";
            gossamer::delegate!(text, [more] |t| t.push_str(more));
        })
        .unwrap();
}

//! A callback of a scope stays on its thread: what it borrows need not be `Sync`.

use std::cell::Cell;

fn main() {
    gossamer::Rack::new()
        .threads(2)
        .run(|| {
            let seen = Cell::new(0);
            gossamer::scope(|s| {
                let callback = s.callback(|n: u64| seen.set(n));
                gossamer::spawn(move || callback(1));
            });
        })
        .unwrap();
}

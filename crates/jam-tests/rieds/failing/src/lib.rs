//! Does not start: it says why the first time, and panics later.

use std::sync::atomic::{AtomicBool, Ordering};

ried::interface! {
    export {
        /// Nothing calls it.
        pub fn scale_never() {}
    }
    start = begin;
}

static IS_SECOND: AtomicBool = AtomicBool::new(false);

fn begin(_: &ried::Host) -> Result<(), String> {
    if IS_SECOND.swap(true, Ordering::Relaxed) {
        panic!("it starts once more");
    }
    Err("not on this host".to_owned())
}

//! What behaviours and the tests of racks share: a deadline, panics as messages, and how a property tells
//! that it was dropped.

use std::panic;
use std::time::{Duration, Instant};

use gossamer::Trust;

/// How long anything may take before it counts as hung; an emulated guest is slow.
pub const DEADLINE: Duration = Duration::from_secs(360);

/// Waits until `done`, letting other fibers run; fails with `what` after a while.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE / 4;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        gossamer::sleep(Duration::from_micros(200));
    }
}

/// The message of a panic.
pub fn message_of(panicked: &(dyn std::any::Any + Send)) -> String {
    let text = panicked.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panicked.downcast_ref::<String>().cloned()).expect("a panic with a message")
}

/// The message with which `body` panics.
#[track_caller]
pub fn panic_in<R>(body: impl FnOnce() -> R) -> String {
    match panic::catch_unwind(panic::AssertUnwindSafe(body)) {
        Ok(_) => panic!("it should have panicked"),
        Err(panicked) => message_of(&*panicked),
    }
}

/// A property whose drop is counted, wherever in the rack it happens.
pub struct Counted(pub Trust<u32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.apply_then(|drops| *drops += 1, |()| {});
    }
}

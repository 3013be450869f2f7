//! A thread that passes polls and sleeps, and a service thread that inhibits a region: once the
//! thread has passed, it does not use the region any more.

#![cfg(loom)]

use gossamer_transport_control::Epochs;
use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

#[derive(Default)]
struct Region {
    is_dead: AtomicBool,
    is_free: AtomicBool,
}

impl Region {
    /// As a lane uses it: check, then copy.
    fn use_it(&self) {
        if !self.is_dead.load(Ordering::Relaxed) {
            assert!(!self.is_free.load(Ordering::Relaxed), "used after its revocation");
        }
    }
}

#[test]
fn a_thread_that_has_passed_uses_the_region_no_more() {
    loom::model(|| {
        let (epochs, region) = (Arc::new(Epochs::new(1)), Arc::new(Region::default()));
        let user = thread::spawn({
            let (epochs, region) = (epochs.clone(), region.clone());
            move || {
                epochs.back(0);
                region.use_it();
                epochs.pass(0);
                region.use_it();
                epochs.away(0);
                epochs.back(0);
                region.use_it();
            }
        });
        region.is_dead.store(true, Ordering::Relaxed);
        epochs.publish(1);
        if epochs.passed(0) >= 1 {
            region.is_free.store(true, Ordering::Relaxed);
        }
        user.join().expect("no panic");
    });
}

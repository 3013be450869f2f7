//! What a caught panic leaves behind.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Frees the payload of a caught panic, where a panic of the payload's own destructor must not
/// escape either. What such a second panic carries is not freed: it could panic again.
///
/// The destructor is code of the user: call this where that may run.
#[cold]
pub fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static DROPS: AtomicU32 = AtomicU32::new(0);

    /// A payload whose destructor panics as often as it says, with another one.
    struct Falls(u32);

    impl Drop for Falls {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
            if self.0 > 0 {
                panic_any(Falls(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_payload_is_freed_and_its_panic_stays_inside() {
        for (panics, drops) in [(0, 1), (1, 1), (3, 1)] {
            let payload = catch_unwind(|| panic_any(Falls(panics))).unwrap_err();
            let before = DROPS.load(Ordering::Relaxed);
            drop_payload(payload);
            assert_eq!(DROPS.load(Ordering::Relaxed) - before, drops);
        }
    }
}

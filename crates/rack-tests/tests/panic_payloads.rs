//! What a caught panic carries is freed, wherever it was caught, also if its own destructor panics.

mod common;

use std::panic::panic_any;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use common::{KINDS, run, wait_until, within_deadline};
use gossamer::{RackError, Trustee};

static MADE: AtomicU32 = AtomicU32::new(0);
static FREED: AtomicU32 = AtomicU32::new(0);

/// What panics carry here.
struct Payload {
    /// Whether its destructor panics, with what cannot be freed.
    falls: bool,
    _bytes: Vec<u8>,
}

fn fall(falls: bool) -> ! {
    MADE.fetch_add(1, SeqCst);
    panic_any(Payload { falls, _bytes: vec![7; 100] })
}

impl Drop for Payload {
    fn drop(&mut self) {
        FREED.fetch_add(1, SeqCst);
        assert!(!self.falls, "the payload fell over");
    }
}

/// A value whose destructor panics.
struct FallsAtLast;

impl Drop for FallsAtLast {
    fn drop(&mut self) {
        fall(false);
    }
}

/// Waits until that many payloads have been made and freed.
#[track_caller]
fn are_freed(count: u32) {
    wait_until("all payloads", || FREED.load(SeqCst) >= count);
    assert_eq!((MADE.load(SeqCst), FREED.load(SeqCst)), (count, count));
}

fn panics_everywhere() {
    let here = gossamer::local_trustee().trustee();
    let others: Vec<Trustee> = gossamer::threads().filter(|trustee| *trustee != here).collect();
    let closure = |_: &mut u8, falls: bool| -> u8 { fall(falls) };
    let mut made = 0;
    for other in others {
        let remote = other.entrust(0u8);
        for falls in [false, true] {
            let error = remote.try_apply_with(closure, falls).unwrap_err();
            assert!(error.to_string().contains("a panic whose payload is not a string"), "{error}");
            let spawned = gossamer::spawn_on_with(other, |falls| -> u8 { fall(falls) }, falls);
            drop(spawned.join().unwrap_err());
            remote.apply_with_then(|_, falls| falls, falls, |falls| fall(falls));
            made += 3;
        }
        assert_eq!(remote.apply(|n| *n), 0, "the trustee goes on");
        drop(other.entrust_with(|()| FallsAtLast, ()));
        made += 1;
        are_freed(made);
    }
    let local = gossamer::local_trustee();
    let number = local.entrust(0u8);
    for falls in [false, true] {
        number.try_apply_with_then(closure, falls, |result| drop(result.unwrap_err()));
    }
    drop(local.entrust(FallsAtLast));
    // A result that the program does not take.
    drop(gossamer::spawn(|| FallsAtLast));
    are_freed(made + 4);
}

#[test]
fn payloads_of_caught_panics_are_freed() {
    within_deadline("payloads_of_caught_panics_are_freed", || {
        for kind in KINDS {
            MADE.store(0, SeqCst);
            FREED.store(0, SeqCst);
            let ended = run(kind, panics_everywhere);
            match ended {
                // Those of callbacks and of properties, which are fire-and-forget.
                Err(RackError::Unobserved { .. }) => {}
                other => panic!("{kind:?}: {other:?}"),
            }
            let (made, freed) = (MADE.load(SeqCst), FREED.load(SeqCst));
            assert!(made == freed && made > 8, "{kind:?}: {freed} of {made} were freed");
        }
    });
}

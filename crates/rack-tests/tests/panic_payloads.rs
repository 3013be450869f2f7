//! What a caught panic carries is freed, wherever it was caught, also if its own destructor panics. Its
//! place is known as long as the hooks of the program call the one that a rack has set.

mod common;

use std::panic::{panic_any, set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use common::{KINDS, run, wait_until, within_deadline};
use gossamer::{DelegateError, PanicReport, Rack, RackError, Trustee};

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

/// How often a hook of the test below has seen its panic.
static SEEN: AtomicU32 = AtomicU32::new(0);

#[test]
fn hooks_of_the_program_keep_the_places_if_they_call_the_one_before() {
    const SAID: &str = "number 7 fell";
    let inside = || {
        let me = gossamer::local_trustee().trustee();
        let other = gossamer::threads().find(|trustee| *trustee != me).expect("another thread");
        let number = other.entrust(7u8);
        let fall = || -> PanicReport {
            match number.try_apply(|n| -> u8 { panic!("number {n} fell") }) {
                Err(DelegateError::Panicked { report, .. }) => report,
                other => panic!("{other:?}"),
            }
        };
        let line = line!() - 5;
        let line_of = |report: PanicReport| {
            assert_eq!(report.message, SAID);
            report.place.map(|place| place.line)
        };
        assert_eq!(line_of(fall()), Some(line));
        let ours = Arc::new(take_hook());
        let before = ours.clone();
        set_hook(Box::new(move |info| {
            SEEN.fetch_add((info.payload_as_str() == Some(SAID)).into(), SeqCst);
            before(info);
        }));
        assert_eq!((line_of(fall()), SEEN.load(SeqCst)), (Some(line), 1));
        set_hook(Box::new(|info| {
            SEEN.fetch_add((info.payload_as_str() == Some(SAID)).into(), SeqCst);
        }));
        let report = fall();
        assert_eq!((report.to_string(), SEEN.load(SeqCst)), (SAID.to_owned(), 2));
        assert_eq!(line_of(report), None);
        set_hook(Box::new(move |info| ours(info)));
        assert_eq!((line_of(fall()), SEEN.load(SeqCst)), (Some(line), 2));
    };
    within_deadline("hooks", move || Rack::new().threads(2).run(inside).expect("a rack"));
}

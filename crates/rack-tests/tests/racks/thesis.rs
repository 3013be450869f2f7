//! The listings of the thesis (`docs/thesis.md`) as programs, on every kind of rack. Each is as it is
//! printed there, except where a comment says what Rust, or this crate, has otherwise.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread;

use gossamer::{JoinError, Latch, Trust, local_trustee, spawn};

use crate::common::{self, KINDS, panic_in, run, wait_until, within_deadline};

type Ended = Result<(), JoinError>;

/// Runs a listing on every kind of rack.
fn on_every_rack(name: &'static str, listing: fn() -> Ended) {
    within_deadline(name, move || {
        for kind in KINDS {
            let ended = run(kind, listing);
            ended.unwrap_or_else(|error| panic!("{name} on {kind:?}: {error:?}")).unwrap();
        }
    });
}

/// The trustee of every thread of the rack in turn.
fn on_every_thread(listing: fn(gossamer::Trustee)) -> Ended {
    gossamer::threads().for_each(listing);
    Ok(())
}

/// Figure 1: a counter of this thread.
#[test]
fn figure_1_a_counter() {
    on_every_rack("figure 1", || {
        let ct = local_trustee().entrust(17); // ct: Trust<i32>
        ct.apply(|c| *c += 1); // c: &mut i32
        assert!(ct.apply(|c| *c) == 18);
        Ok(())
    });
}

/// Figure 2a: a counter that two threads share.
#[test]
fn figure_2a_two_threads() {
    on_every_rack("figure 2a", || {
        let ct = local_trustee().entrust(17);
        let ct2 = ct.clone();
        let thread = spawn(move || {
            ct2.apply(|c| *c += 1);
        });
        ct.apply(|c| *c += 1);
        thread.join()?;
        assert!(ct.apply(|c| *c) == 19);
        Ok(())
    });
}

/// Figure 2b: the same with the standard library. An error of `lock` and a panic of the thread are
/// no errors that `?` could return from here.
#[test]
fn figure_2b_two_threads_with_a_mutex() {
    let cm = Arc::new(Mutex::new(17));
    let cm2 = cm.clone();
    let thread = thread::spawn(move || {
        *(cm2.lock().unwrap()) += 1;
    });
    *(cm.lock().unwrap()) += 1;
    thread.join().unwrap();
    assert!(*cm.lock().unwrap() == 19);
}

/// Figure 3: the counter without waiting, at every thread of the rack.
#[test]
fn figure_3_without_waiting() {
    on_every_rack("figure 3", || {
        on_every_thread(|trustee| {
            static CHECKED: AtomicU32 = AtomicU32::new(0);
            let before = CHECKED.load(SeqCst);
            let ct = trustee.entrust(17); // create trust for shared counter set to 17
            ct.apply_then(
                |c| {
                    *c += 1;
                    *c
                }, // increment counter and return its value
                |val| {
                    CHECKED.fetch_add(1, SeqCst);
                    assert!(val == 18) // check return value once received
                },
            );
            wait_until("the callback", || CHECKED.load(SeqCst) == before + 1);
        })
    });
}

/// Section 2.4.2: the second closure captures, here a vector that the caller shares with it. It
/// outlives the call, so the vector is counted instead of borrowed.
#[test]
fn section_2_4_2_a_callback_adds_to_a_vector() {
    on_every_rack("section 2.4.2", || {
        on_every_thread(|trustee| {
            let ct = trustee.entrust(17);
            let values = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..3 {
                let values = values.clone();
                ct.apply_then(
                    |c| {
                        *c += 1;
                        *c
                    },
                    move |val| values.borrow_mut().push(val),
                );
            }
            wait_until("three values", || values.borrow().len() == 3);
            assert_eq!(*values.borrow(), [18, 19, 20]);
        })
    });
}

/// Section 2.4.2: the same with a vector that the callback borrows, which a scope makes safe.
#[test]
fn section_2_4_2_a_callback_borrows_a_vector() {
    on_every_rack("section 2.4.2", || {
        on_every_thread(|trustee| {
            let ct = trustee.entrust(17);
            let mut values = Vec::new();
            gossamer::scope(|s| {
                ct.apply_then(
                    |c| {
                        *c += 1;
                        *c
                    },
                    s.callback(|val| values.push(val)),
                );
            });
            assert_eq!(values, [18]);
        })
    });
}

/// Section 2.4.2: `apply_then` is called in delegated context, where `apply` is an error (2.3.4).
#[test]
fn section_2_4_2_delegated_closures_delegate() {
    on_every_rack("section 2.4.2", || {
        on_every_thread(|trustee| {
            let (outer, inner) = (trustee.entrust(1), local_trustee().entrust(17));
            let add = |outer: &mut i32, inner: Trust<i32>| {
                let sum = *outer;
                inner.apply_with_then(|inner, sum| *inner += sum, sum, |()| {});
            };
            outer.apply_with(add, inner.clone());
            wait_until("the sum", || inner.apply(|inner| *inner) == 18);

            let wait = |_: &mut i32, inner: Trust<i32>| inner.apply(|inner| *inner);
            let message = panic_in(|| outer.apply_with(wait, inner.clone()));
            assert!(message.contains("must not wait"), "{message}");
        })
    });
}

/// Section 2.4.3: a closure that waits is launched instead of applied.
#[test]
fn section_2_4_3_launched_closures_wait() {
    on_every_rack("section 2.4.3", || {
        on_every_thread(|trustee| {
            let (outer, inner) = (trustee.entrust_with(Latch::new, 1), local_trustee().entrust(17));
            let add = |outer: &mut i32, inner: Trust<i32>| {
                *outer += inner.apply(|inner| *inner);
                *outer
            };
            assert_eq!(outer.launch_with(add, inner), 18);
            assert_eq!(outer.launch(|outer| *outer), 18);

            let values = Rc::new(RefCell::new(Vec::new()));
            let added = values.clone();
            outer.launch_then(|outer| *outer, move |val| added.borrow_mut().push(val));
            wait_until("the callback", || *values.borrow() == [18]);
        })
    });
}

/// Section 2.4.3.2: values without a size known to the compiler are arguments.
#[test]
fn section_2_4_3_2_keys_and_values_are_arguments() {
    on_every_rack("section 2.4.3.2", || {
        on_every_thread(|trustee| {
            let make = |()| HashMap::<String, Box<[u8]>>::new();
            let table_trust = trustee.entrust_with(make, ());
            for value in [b"Hello".as_slice(), b"Hi".as_slice()] {
                let (key, value) = ("Greeting".to_owned(), Box::<[u8]>::from(value));
                table_trust
                    .apply_with(|table, (key, value)| table.insert(key, value), (key, value));
            }
            let there =
                table_trust.apply_with(|table, key| table.remove(&key), "Greeting".to_owned());
            assert_eq!(there.as_deref(), Some(b"Hi".as_slice()));
        })
    });
}

/// Table II: both kinds of delegation. A result travels in an encoding, which a reference has not, so
/// here the closures return whether the key is new; and the fiber takes the trust, since it may
/// outlive its caller.
#[test]
fn table_2_both_kinds_of_delegation() {
    static ADDED: AtomicU32 = AtomicU32::new(0);
    on_every_rack("table II", || {
        let before = ADDED.load(SeqCst);
        let property = HashMap::new();
        let trust = gossamer::entrust(property);
        let greetings = trust.clone();
        let fiber = gossamer::spawn(move || {
            trust.apply(|property| property.insert("First Greeting", "Hello").is_none());
            trust.apply_then(
                |property| property.insert("Second Greeting", "Hi").is_none(),
                |_| {
                    println!("added second greeting");
                    ADDED.fetch_add(1, SeqCst);
                },
            );
        });
        fiber.join()?;
        wait_until("the callback", || ADDED.load(SeqCst) == before + 1);
        assert!(greetings.apply(|property| property["First Greeting"] == "Hello"));
        assert!(greetings.apply(|property| property["Second Greeting"] == "Hi"));
        Ok(())
    });
}

/// Section 3.2.6: a trust is cloned in delegated context, and counted.
#[test]
fn section_3_2_6_trusts_are_cloned_in_delegated_context() {
    on_every_rack("section 3.2.6", || {
        on_every_thread(|trustee| {
            let drops = local_trustee().entrust(0);
            let ct = trustee.entrust_with(common::Counted, drops.clone());
            let shelf = trustee.entrust_with(|()| Vec::<Trust<common::Counted>>::new(), ());
            let keep = |shelf: &mut Vec<_>, ct: Trust<_>| shelf.push(ct.clone());
            shelf.apply_with(keep, ct);
            assert_eq!(drops.apply(|drops| *drops), 0, "the clone keeps it");
            shelf.apply(|shelf| shelf.clear());
            wait_until("the drop of the property", || drops.apply(|drops| *drops) == 1);
        })
    });
}

//! A malicious peer writes anything into its slots and sends anything by the bulk path: the
//! trustee's thread does not panic, reads nothing beyond the slot, runs no closure on a property of
//! another type, and gives a reason with every refusal.
#![cfg(not(loom))]

mod lent;
mod random;
mod replies;
mod scene;
mod victim;
mod views;

use std::collections::BTreeSet;

use scene::{Scene, Signal, Step, WORD, encoded, head, run_head};
use victim::{LONG, PROPERTIES, RUN, fill_table};

const UNKNOWN: &str = "it names a closure that this program does not have";

#[test]
fn every_closure_on_every_property_runs_or_is_refused_with_a_reason() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        let mut ran = BTreeSet::new();
        let mut reasons = BTreeSet::new();
        let closures = (0..1000)
            .find(|closure| {
                scene.request(head(1, *closure, 0, false), &[], node, fibers).contains(UNKNOWN)
            })
            .expect("an end of the table");
        // How many there are depends on what the optimiser shares.
        assert!(closures > 10, "only {closures} closures in the table");
        for closure in 0..closures {
            for property in 1..=PROPERTIES + 1 {
                for payload in [&[][..], &[0], &[0; 8], &[u64::MAX; 3], &[3, 5]] {
                    let head = head(property, closure, payload.len(), false);
                    let before = RUN.get();
                    let said = scene.request(head, payload, node, fibers);
                    if RUN.get() > before {
                        ran.insert(property);
                    }
                    for reason in [
                        "there is no property",
                        "and the closure works on a",
                        "the value ends before all of it has been read",
                    ] {
                        if said.contains(reason) {
                            reasons.insert(reason);
                        }
                    }
                }
            }
        }
        assert!(ran.contains(&1) && ran.contains(&2), "only properties {ran:?} were worked on");
        assert_eq!(reasons.len(), 3, "only these reasons were given: {reasons:?}");
    });
}

#[test]
fn a_request_cannot_be_longer_than_its_batch_or_its_batch_than_the_buffer() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        for (requests, end) in
            [(1, 0), (1, 1), (1, 2), (65_535, 3), (2, 2), (0, 0), (0, 9), (1, 8192), (1, 65_535)]
        {
            for words in [0, 1, 7, 2047] {
                let before = scene.sequence;
                // What earlier answers have left there is not the subject, and may ask for a payload.
                scene.clear();
                scene.write(&[head(1, 0, words, false), 1, 2, 3], &Signal::Batch(requests, end));
                scene.serve(node, fibers);
                assert_eq!(scene.sequence, before + 1, "{requests} requests, end {end}");
            }
        }
    });
}

#[test]
fn a_run_is_served_request_by_request_as_far_as_its_batch_goes_or_refused() {
    const UNSERVED: &str = "one of a run, and its closure does not accept runs";
    fill_table();
    Scene::with(|scene, node, fibers| {
        let (mut served, mut refused, mut panicked) = (BTreeSet::new(), 0, 0);
        for closure in 0..1000 {
            let ran_before = RUN.get();
            let said = scene.request(run_head(2, closure, 3), &[1, 13, 1], node, fibers);
            if said.contains(UNKNOWN) {
                assert_eq!(said.matches(UNKNOWN).count(), 3, "closure {closure}");
                break;
            }
            refused += usize::from(said.contains(UNSERVED));
            if said.contains("thirteen, on purpose") {
                assert_eq!(said.matches("thirteen, on purpose").count(), 1);
                assert_eq!(RUN.get() - ran_before, 2, "the others of the run are served");
                panicked += 1;
            }
            for property in 1..=PROPERTIES + 1 {
                // None of these is the head of a request whose payload is still to come.
                for payload in [&[][..], &[0], &[3, 5], &[1 << 40; 3]] {
                    for claimed in [0, 1, payload.len(), 2047] {
                        let before = RUN.get();
                        let head = run_head(property, closure, claimed);
                        scene.request(head, payload, node, fibers);
                        // What the run does not claim are requests of their own.
                        let ran = (RUN.get() - before) as usize;
                        assert!(ran <= payload.len(), "closure {closure} ran {ran} times");
                        if ran > 0 {
                            served.insert(property);
                        }
                    }
                }
            }
        }
        assert!(served.contains(&1) && served.contains(&2), "only properties {served:?}");
        assert!(refused > 5 && panicked > 0, "{refused} refused, {panicked} panicked");
    });
}

#[test]
fn a_run_of_plain_calls_has_those_that_are_whole_and_one_word_for_all() {
    fill_table();
    const B: u64 = u64::from_ne_bytes([2; 8]);
    Scene::with(|scene, node, fibers| {
        // Calls of eleven bytes, and of two words then, which word 3 has fail.
        let whole = format!("three, [{}2]", "2, ".repeat(10));
        let plain = (0..1000)
            .find(|closure| {
                let said = scene.request(run_head(1, *closure, 1), &[3, B, B], node, fibers);
                said.contains(&whole)
            })
            .expect("a call of plain bytes");
        let mut say = |property, claimed, words: &[u64]| {
            let before = RUN.get();
            let said = scene.request(run_head(property, plain, claimed), words, node, fibers);
            (said.matches(&whole).count(), RUN.get() - before, said)
        };
        // As many as are there, however many are claimed, and what is left over is no call.
        for words in 0..9_usize {
            for claimed in [0, 1, 2, 3, 4, 2047] {
                let payload = [&[3][..], &[B; 8]].concat();
                let expected = claimed.min(words.saturating_sub(1) / 2);
                let (failed, ran, said) = say(1, claimed, &payload[..words]);
                assert_eq!((failed, ran), (expected, 0), "{claimed} of {words} words: {said}");
            }
        }
        let (failed, ran, said) = say(1, 3, &[7, B, B, 3, 3, 0, 0]);
        assert_eq!((failed, ran), (0, 3), "the word is in front of the first: {said}");
        let (_, ran, said) = say(PROPERTIES + 5, 3, &[3, B, B, B, B, B, B]);
        assert_eq!((ran, said.matches("there is no property").count()), (0, 3), "{said}");
        let (_, ran, said) = say(4, 3, &[3, B, B, B, B, B, B]);
        assert_eq!((ran, said.matches("and the closure works on a").count()), (0, 3), "{said}");
    });
}

#[test]
fn a_plain_call_of_so_many_bytes_is_served_with_exactly_so_many() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        // Those that are served with 11 and 200 bytes: the other kind has all that is sent.
        let kinds = [11, LONG].map(|len| {
            let found = (0..1000).find(|closure| {
                let said =
                    scene.request(head(1, *closure, 41, false), &plain_words(3, 40), node, fibers);
                said.matches("2, ").count() == len - 1 && said.contains("three, [")
            });
            (found.expect("a call of plain bytes"), len)
        });
        for (closure, len) in kinds {
            for bytes in 0..=2 * LONG {
                let is_whole = bytes >= len + WORD;
                let payload: Vec<u8> = [&3u64.to_le_bytes()[..], &[2; 2 * LONG]].concat();
                scene.act(&Step::Bulk(0, payload[..bytes].to_vec()), fibers);
                scene.serve(node, fibers);
                let said = scene.request(head(1, closure, 1, true), &[0], node, fibers);
                let expected = if is_whole {
                    format!("three, [{}2]", "2, ".repeat(len - 1))
                } else {
                    format!("has {bytes} bytes of arguments, and at least {} were", len + WORD)
                };
                assert!(said.contains(&expected), "{len}, bulk of {bytes}: {said}");
                let words = bytes / WORD;
                if bytes % WORD == 0 && words > 0 {
                    let head = head(1, closure, words, false);
                    let said = scene.request(head, &plain_words(3, words - 1), node, fibers);
                    assert!(said.contains(&expected), "{len}, {words} words: {said}");
                }
            }
        }
    });
}

#[test]
fn a_result_for_which_its_request_has_no_room_is_refused() {
    const NO_ROOM: &str = "the request has no room for its result";
    fill_table();
    Scene::with(|scene, node, fibers| {
        let wide = (0..1000)
            .find(|closure| {
                scene.request(head(1, *closure, 1, false), &[5], node, fibers).contains(NO_ROOM)
            })
            .expect("a call with a long result");
        // The next request is served as it was sent.
        let next = head(1, wide, 3, false);
        scene.request(head(1, wide, 1, false), &[5, next, 7, 0, 0], node, fibers);
        let answered = scene.answered();
        assert_eq!(answered[3 * WORD..7 * WORD], [7_u64.to_le_bytes(); 4].concat());
    });
}

/// The words of a call of plain bytes: its own, and some of twos.
fn plain_words(word: u64, others: usize) -> Vec<u64> {
    [&[word][..], &vec![u64::from_ne_bytes([2; 8]); others]].concat()
}

#[test]
fn values_that_would_exhaust_the_stack_or_the_memory_are_refused_with_a_reason() {
    fill_table();
    // A chain 30,000 deep; half a gigabyte of text, or a vector of as many elements of no bytes.
    let claim = (512u32 << 20).to_le_bytes();
    let payloads =
        [(encoded(&[1; 30_000]), "nested more than"), (encoded(&claim), "with 0 bytes left")];
    Scene::with(|scene, node, fibers| {
        for (payload, reason) in payloads {
            let mut refused = 0;
            for closure in 0..1000 {
                scene.act(&Step::Bulk(0, payload.clone()), fibers);
                scene.serve(node, fibers);
                // On the text, which is the fourth property after the node's own.
                let said = scene.request(head(4, closure, 1, true), &[0], node, fibers);
                refused += usize::from(said.contains(reason));
                if said.contains(UNKNOWN) {
                    break;
                }
            }
            assert!(refused > 0, "no closure was refused because of {reason:?}");
        }
    });
}

//! A malicious peer writes anything into its slots and sends anything by the bulk path: the
//! trustee's thread does not panic, reads nothing beyond the slot, runs no closure on a property of
//! another type, and gives a reason with every refusal.
#![cfg(not(loom))]

mod lent;
mod random;
mod replies;
mod scene;
mod victim;

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
                scene.write(&[head(1, 0, words, false), 1, 2, 3], &Signal::Batch(requests, end));
                scene.serve(node, fibers);
                assert_eq!(scene.sequence, before + 1, "{requests} requests, end {end}");
            }
        }
    });
}

#[test]
fn a_run_is_served_request_by_request_as_far_as_its_batch_goes_or_refused() {
    const UNSERVED: &str = "one of a run, which its closure does not serve";
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
fn a_word_left_out_is_that_of_the_last_plain_call_served_or_not() {
    fill_table();
    const B: u64 = u64::from_ne_bytes([2; 8]);
    const GONE: u32 = PROPERTIES + 5;
    Scene::with(|scene, node, fibers| {
        // Calls of eleven bytes with word 3 are told from others by their error.
        let threes = |said: String| said.matches("three, [").count();
        let is_whole = |said: &str| said.contains(&format!("three, [{}2]", "2, ".repeat(10)));
        let mut say = |requests: &[(u64, &[u64])]| {
            let words: Vec<u64> =
                requests.iter().flat_map(|(head, words)| [&[*head], *words].concat()).collect();
            scene.request(words[0], &words[1..], node, fibers)
        };
        let all = 0..1000;
        let serve = |property, closure| head(property, closure, 3, false);
        let again = |closure| head(1, closure, 2, false);
        let plain = (all.clone())
            .find(|closure| is_whole(&say(&[(serve(1, *closure), &[3, B, B])])))
            .expect("a call of plain bytes");
        let first = (serve(1, plain), &[3, B, B][..]);
        let without = (all.clone())
            .find(|closure| threes(say(&[first, (again(*closure), &[B, B])])) == 2)
            .expect("one with its word left out");
        let without = (again(without), &[B, B][..]);
        let unknown =
            all.clone().find(|closure| say(&[(again(*closure), &[0; 2])]).contains(UNKNOWN));
        let unknown = (again(unknown.expect("an end of the table")), &[3, B][..]);
        let other = (all.clone())
            .find(|closure| {
                say(&[(head(GONE, *closure, 0, false), &[])]).contains("wanted a alloc")
            })
            .expect("a closure on the text");
        let gone = (serve(GONE, plain), &[3, B, B][..]);
        let gone_other = (serve(GONE, other), &[7, B, B][..]);
        let short = (head(1, plain, 2, false), &[7, B][..]);
        let gone_short = (head(GONE, plain, 0, false), &[][..]);
        let cases: [(&[_], usize); 9] = [
            (&[without], 0),
            (&[gone, without], 1),
            (&[gone, without, without], 2),
            (&[first, gone_other, without], 2),
            (&[first, unknown, without], 1),
            (&[first, short, without], 1),
            (&[first, gone_short, without], 1),
            (&[gone, short, without], 0),
            (&[gone, short, first, without], 2),
        ];
        for (number, (requests, expected)) in cases.into_iter().enumerate() {
            let said = say(requests);
            assert_eq!(threes(said.clone()), expected, "case {number}: {said:?}");
        }
        assert!(say(&[short]).contains("16 bytes"), "{}", say(&[short]));
        assert!(say(&[without]).contains("leaves its word out"), "{}", say(&[without]));
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
                // On the text, which is the fourth property behind the node's own.
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

//! Replies: those that stand apart from their requests, and those that come later.

use std::sync::Mutex;

use gossamer_trust_core::{Latch, Trustee, local_trustee};

use crate::UNKNOWN;
use crate::scene::{Scene, Signal, Step, WORD, head};
use crate::victim::fill_table;

/// The head of a reply that stands apart, of the request whose head was at word `at`.
pub(crate) fn apart(status: u64, at: usize, len: usize) -> u64 {
    (len as u64) << 32 | (at as u64) << 4 | status
}

#[test]
fn replies_that_stand_apart_are_taken_for_what_they_are() {
    /// What calls have ended with; they run on this test's thread.
    static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    const NONSENSE: &str = "makes no sense";
    let (done, refused) = (0, 2);
    // A text where the kind of a refusal belongs: a header for seven bytes, a length, and the text.
    let nay = [7u64, u64::from_le_bytes(*b"\x03\0\0\0nay\0")];
    // What the peer writes from word 1 on, where the only request was, the word at which it says
    // that all ends, and what the victim makes of it.
    let cases: [(&[u64], u16, &str); 10] = [
        (&[77], 2, "77"),
        (&[1, apart(refused, 1, 15), nay[0], nay[1]], 5, NONSENSE),
        (&[1, apart(done, 1, 8), 78], 4, "78"),
        (&[1, apart(done, 1, 1000), 78], 4, NONSENSE),
        (&[1, apart(done, 1, usize::MAX >> 32), 78], u16::MAX, NONSENSE),
        (&[1, apart(3, 1, 8), 78], 4, NONSENSE),
        // That the result comes later, of a call that is no launch.
        (&[1, apart(4, 1, 0)], 3, NONSENSE),
        (&[1, apart(done, 1, 7), 78], 4, "decode"),
        (&[80, apart(done, 1, 8), 78], 0, "80"),
        // The last: a peer that replies to what it was not asked is given up.
        (&[79, apart(done, 9, 8), 78], 4, "79"),
    ];
    Scene::with(|scene, node, fibers| {
        for (words, end, expected) in cases {
            drop(fibers.remote().spawn(|| {
                let peer = Trustee::from_number(0).expect("the peer");
                let ended = match peer.try_visit_node(|_, ()| 5u64, ()) {
                    Ok(number) => number.to_string(),
                    Err(error) => error.to_string(),
                };
                ENDED.lock().unwrap().push(ended);
            }));
            scene.serve(node, fibers);
            scene.act(&Step::Answer(words.to_vec(), Signal::Batch(0, end)), fibers);
            let incidents = scene.serve(node, fibers);
            let ended = std::mem::take(&mut *ENDED.lock().unwrap());
            assert!(matches!(&ended[..], [one] if one.contains(expected)), "{expected}: {ended:?}");
            let lost = incidents.contains("belong to no request");
            assert_eq!(lost, expected == "79", "{expected}: {incidents}");
        }
    });
}

/// The words of an encoded value with so many fields and this body.
fn encoded_words(fields: u64, body: &[&[u8]]) -> Vec<u64> {
    let mut bytes = body.concat();
    let header = fields << 32 | bytes.len() as u64;
    bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    let body = bytes.chunks(WORD).map(|word| u64::from_le_bytes(word.try_into().expect("a word")));
    [header].into_iter().chain(body).collect()
}

#[test]
fn a_later_reply_of_a_host_that_was_not_asked_ends_no_call() {
    /// What calls have ended with.
    static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn ended() -> Vec<String> {
        std::mem::take(&mut *ENDED.lock().unwrap())
    }
    fill_table();
    Scene::with(|scene, node, fibers| {
        let reply = |scene: &mut Scene, closure: u32, call: u64| {
            let (token, done) = ((call << 32).to_le_bytes(), [0]);
            let (len, payload) = (8u32.to_le_bytes(), 77u64.to_le_bytes());
            let words = encoded_words(3, &[&token, &done, &len, &payload]);
            let head = head(0, closure, words.len(), false);
            let batch = Signal::Batch(1, 2 + words.len() as u16);
            scene.write(&[&[head], &words[..]].concat(), &batch);
            scene.serve(node, fibers)
        };
        // Its first call is to the peer, which may end it.
        drop(fibers.remote().spawn(|| {
            let peer = Trustee::from_number(0).expect("the peer");
            let result = peer.spawn_with(|words: Vec<u32>| words.len() as u64, vec![]).join();
            ENDED.lock().unwrap().push(format!("{result:?}"));
        }));
        scene.serve(node, fibers);
        let ends = |closure: &u32| {
            reply(scene, *closure, 1);
            !ENDED.lock().unwrap().is_empty()
        };
        let replies = (0..1000).find(ends).expect("a closure that ends a call");
        assert_eq!(ended(), ["Ok(77)"]);
        // The second is to a thread of its own.
        drop(fibers.remote().spawn(|| {
            let latch = local_trustee().entrust(Latch::new(0u64));
            let result = latch.try_launch(|value| {
                fiber::park();
                *value
            });
            ENDED.lock().unwrap().push(format!("{result:?}"));
        }));
        scene.serve(node, fibers);
        let incidents = reply(scene, replies, 2);
        assert!(incidents.contains("belong to no request"), "{incidents}");
        assert_eq!(ended(), [""; 0]);
    });
}

#[test]
fn a_peer_gets_replies_of_its_own_calls_only() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        let mut spawns = |thread: u32| {
            // Where the reply goes, and a vector without elements.
            let (token, len) = (7u64.to_le_bytes(), [0; 4]);
            let words = encoded_words(4, &[&thread.to_le_bytes(), &token, &len]);
            let mut said = (0..1000).map(|closure| {
                scene.request(head(0, closure, words.len(), false), &words, node, fibers)
            });
            let mut refused = 0;
            let is_more = |said: &String| !said.contains(UNKNOWN);
            said.by_ref().take_while(is_more).for_each(|said| {
                refused += usize::from(said.contains("expected the sender, thread 0 of host 0"));
            });
            refused
        };
        assert_eq!(spawns(0), 0);
        for thread in [1, 2, u32::MAX] {
            assert!(spawns(thread) > 0, "a fiber replies to thread {thread}");
        }
    });
}

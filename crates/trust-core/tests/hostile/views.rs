//! Calls with lent arguments whose replies are views: what their trustee writes for a peer that lies, and what
//! their caller is shown by one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use gossamer_trust_core::{PanicReport, Trust, Trustee};
use primitive::SharedBytes;
use primitive::limits::SLOT_BYTES;
use primitive::sync::Ordering;

use crate::lent::{Arguments, GROUP, Place, batch, closures, serve};
use crate::replies::apart;
use crate::scene::{Scene, Signal, Step, WORD, buffer};
use crate::victim::{SHOWN, fill_table, shown};

/// What a peer finds in place of a call.
#[derive(Debug, PartialEq)]
enum Found {
    View(Vec<u8>),
    /// It comes by the bulk path, and has so many bytes.
    Bulk(usize),
    Refused,
}

/// An optional view, encoded.
fn encoded_view(view: Option<&[u8]>) -> Vec<u8> {
    let body = view
        .map_or(vec![0], |bytes| [&[1], &(bytes.len() as u32).to_le_bytes()[..], bytes].concat());
    crate::scene::encoded(&body)
}

/// What an honest trustee replies to the call with this number.
fn expected(number: u64) -> Found {
    match shown(number) {
        Some(len) if len > SLOT_BYTES / 2 => {
            Found::Bulk(encoded_view(Some(&vec![SHOWN; len])).len())
        }
        len => Found::View(encoded_view(len.map(|len| vec![SHOWN; len]).as_deref())),
    }
}

/// The replies in the batch that was answered last, to requests of so many words after their heads.
fn replies(scene: &Scene, words: &[usize]) -> Vec<Found> {
    let bytes = scene.answered();
    let word =
        |at: usize| u64::from_le_bytes(bytes[at * WORD..][..WORD].try_into().expect("a word"));
    let (mut apart, end) = (1 + words.iter().map(|words| 1 + words).sum::<usize>(), word(0) as u16);
    let (mut at, mut found) = (1, vec![]);
    for words in words {
        let head = word(apart);
        let len = (head >> 32) as usize;
        // In the order of the requests.
        let is_apart = apart < end as usize && head as u32 >> 4 == at as u32;
        found.push(match head & 0xf {
            _ if !is_apart => {
                let len = word(at) as usize;
                assert!(len <= words * WORD, "{len} bytes in {words} words");
                Found::View(bytes[(at + 1) * WORD..][..len].to_vec())
            }
            8 => Found::Bulk(len),
            0 => Found::View(bytes[(apart + 1) * WORD..][..len].to_vec()),
            2 => Found::Refused,
            other => panic!("status {other}"),
        });
        if is_apart {
            apart += 1 + if head & 8 == 0 { len.div_ceil(WORD) } else { 0 };
        }
        at += 1 + words;
    }
    assert_eq!(apart, end as usize, "nothing else was written");
    found
}

#[test]
fn a_peer_is_shown_the_property_and_nothing_else() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        let place = (node, fibers);
        let [_, view] = closures(scene, place);
        let calls: Vec<_> =
            (1..=2 * GROUP as u64 + 2).map(|number| Arguments::new(number, 5)).collect();
        let words: Vec<_> = calls.iter().map(|call| call.words().len()).collect();
        let all: Vec<_> = calls.iter().map(|call| expected(call.number)).collect();
        serve(scene, place, &batch(view, &calls), 0);
        assert_eq!(replies(scene, &words), all);
        for wrong in 0..calls.len() {
            for lie in [1, 8, 100, 1 << 16, u32::MAX - 400] {
                let mut calls = calls.clone();
                calls[wrong].more = (0, lie);
                serve(scene, place, &batch(view, &calls), 0);
                let found = replies(scene, &words);
                assert_eq!(found[wrong], Found::Refused, "call {wrong} claims {lie} more");
                let honest = |at: &usize| *at != wrong;
                for at in (0..calls.len()).filter(honest) {
                    assert_eq!(found[at], all[at], "call {at}, beside {wrong} with {lie} more");
                }
            }
        }
    });
}

/// Words that a peer writes from word 1 on, the first of them in the place of the only request; and the word
/// at which it says that all ends.
struct Reply(Vec<u64>, usize);

impl Reply {
    /// In the place of the request, with this claim about its length.
    fn in_place(claimed: u64, bytes: &[u8]) -> Self {
        let words = [vec![claimed], words_of(bytes)].concat();
        Reply(words, 0)
    }

    /// After the request, with this claim.
    fn apart(asked: usize, status: u64, claimed: usize, bytes: &[u8]) -> Self {
        let words = words_of(bytes);
        let all = [vec![0; asked - 1], vec![apart(status, 1, claimed)], words].concat();
        let end = 1 + all.len();
        Reply(all, end)
    }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Has the fiber of the victim, which waits for the reply to its only request, get this one.
fn answer(scene: &mut Scene, (node, fibers): Place<'_>, Reply(words, end): Reply) {
    scene.act(&Step::Answer(words, Signal::Batch(0, end as u16)), fibers);
    scene.serve(node, fibers);
}

/// Writes over all that a reply may be in.
fn write_over(slot: &SharedBytes) {
    for sequence in 0..2 {
        let words = (WORD..SLOT_BYTES).step_by(WORD);
        words.for_each(|at| slot.store(buffer(sequence) + at, !0, Ordering::Relaxed));
    }
}

#[test]
fn a_caller_is_shown_what_a_reply_was_or_gets_an_error() {
    /// What calls have ended with; they run on this test's thread.
    static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    const NONSENSE: &str = "makes no sense";
    let long = "x".repeat(300);
    let (short, whole) = (encoded_view(Some(b"abc")), encoded_view(Some(long.as_bytes())));
    let change = |at: usize, byte: u8| {
        let mut bytes = short.clone();
        bytes[at] = byte;
        bytes
    };
    let (of_short, of_whole) = (short.len() as u64, whole.len());
    // The request has two words after its head.
    let asked = 4;
    let reply = |status, claimed, bytes: &[u8]| Reply::apart(asked, status, claimed, bytes);
    let cut = |Reply(words, end): Reply| Reply(words, end - 1);
    let cases = [
        (Reply::in_place(of_short, &short), "Some(\"abc\")"),
        (reply(0, of_whole, &whole), &long[..]),
        // Longer than its place, than the slot, than memory.
        (Reply::in_place(of_short + 1, &short), NONSENSE),
        (Reply::in_place(SLOT_BYTES as u64, &short), NONSENSE),
        (Reply::in_place(u64::MAX, &short), NONSENSE),
        (Reply::in_place(of_short - 1, &short), "decode"),
        (reply(0, of_whole + 8, &whole), NONSENSE),
        (reply(0, u32::MAX as usize, &whole), NONSENSE),
        (cut(reply(0, of_whole, &whole)), NONSENSE),
        // A text that is longer than its value, or no text; an option that is neither; a trust.
        (Reply::in_place(of_short, &change(9, 4)), "decode"),
        (Reply::in_place(of_short, &change(12, 0xff)), "decode"),
        (Reply::in_place(of_short, &change(15, 0xc3)), "decode"),
        (Reply::in_place(of_short, &change(8, 2)), "decode"),
        (Reply::in_place(of_short, &change(6, 0x10)), "decode"),
        // What only other calls end with, and nothing does.
        (reply(3, of_whole, &whole), NONSENSE),
        (reply(4, 0, &[]), NONSENSE),
        (reply(7, of_whole, &whole), NONSENSE),
        // The reasons of a panic and of a refusal, which are something else.
        (reply(1, of_whole, &whole), NONSENSE),
        (reply(2, of_whole, &whole), NONSENSE),
        (Reply::in_place(of_short, &short), "Some(\"abc\")"),
    ];
    Scene::with(|scene, node, fibers| {
        let (place, slot, calls) = ((node, fibers), scene.replies.clone(), cases.len());
        drop(fibers.remote().spawn(move || {
            let peer = Trustee::from_number(0).expect("the peer");
            let text: Trust<String> = peer.entrust(String::new());
            for _ in 0..calls {
                let see = |text: Option<&str>| {
                    write_over(&slot);
                    // Where the processor sees it, too.
                    format!("{:?}", std::hint::black_box(text))
                };
                let call = || text.lend("key").apply_ref(|text, _| Some(text.as_str()), see);
                let ended = catch_unwind(AssertUnwindSafe(call));
                let ended = ended.unwrap_or_else(|panic| PanicReport::of(&*panic).message);
                ENDED.lock().unwrap().push(ended);
            }
            // Nothing that its drop would ask is answered.
            std::mem::forget(text);
        }));
        scene.serve(node, fibers);
        // A trust of property 9 of the peer's thread, which is counted by an id.
        let trust = [1 << 44, 9 << 32, 77].map(u64::to_le_bytes).concat();
        let end = scene.end_of_asked();
        answer(scene, place, Reply::apart(end, 0, trust.len(), &trust));
        for (at, (reply, expected)) in cases.into_iter().enumerate() {
            assert_eq!(scene.end_of_asked(), asked, "case {at}");
            answer(scene, place, reply);
            let ended = std::mem::take(&mut *ENDED.lock().unwrap());
            let is_expected = matches!(&ended[..], [one] if one.contains(expected));
            assert!(is_expected, "case {at}, {expected}: {ended:?}");
        }
    });
}

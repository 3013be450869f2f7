//! Arguments that are lent to a call: what a peer claims about them, and what it writes while they are used.
//! The trustee copies equal requests out together and looks at them before it calls.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use gossamer_trust_core::EnteredNode;
use primitive::SharedBytes;
use primitive::limits::SLOT_BYTES;
use primitive::sync::Ordering;

use crate::scene::{Scene, Signal, WORD, buffer, head};
use crate::victim::{AT_FIRST_LOOK, LENT, SEEN, SHOWN, Seen, fill_table};

/// As many requests as are looked at together.
pub(crate) const GROUP: usize = 8;

/// The words of the arguments of a call, of which the second are `len` times `byte`; both lengths may claim
/// more than there is.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    pub(crate) number: u64,
    byte: u8,
    len: usize,
    /// What the header says the body has, and the body the bytes, beyond what they have.
    pub(crate) more: (u32, u32),
    trusts: u64,
}

impl Arguments {
    pub(crate) fn new(number: u64, len: usize) -> Self {
        Arguments { number, byte: number as u8, len, more: (0, 0), trusts: 0 }
    }

    /// With the number of fields of a pair.
    pub(crate) fn words(&self) -> Vec<u64> {
        let body_len = (8 + 4 + self.len) as u32;
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.extend((self.len as u32).wrapping_add(self.more.1).to_le_bytes());
        bytes.resize(body_len as usize, self.byte);
        bytes.resize(bytes.len().next_multiple_of(WORD), self.byte);
        let header = self.trusts << 44 | 2 << 32 | u64::from(body_len.wrapping_add(self.more.0));
        let body = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        [header].into_iter().chain(body).collect()
    }

    fn seen(&self, step: u8) -> Seen {
        (step, self.number, vec![self.byte; self.len])
    }
}

/// A batch of calls of `closure`, the words after its signal.
pub(crate) fn batch(closure: u32, calls: &[Arguments]) -> Vec<u64> {
    let of_call = |call: &Arguments| {
        let words = call.words();
        [vec![head(LENT, closure, words.len(), false)], words].concat()
    };
    calls.iter().flat_map(of_call).collect()
}

/// A victim's thread.
pub(crate) type Place<'a> = (&'a EnteredNode, &'a fiber::Scheduler);

/// Has a batch served whose end is `cut` words in front of its own, and returns what was seen.
pub(crate) fn serve(
    scene: &mut Scene,
    (node, fibers): Place<'_>,
    words: &[u64],
    cut: usize,
) -> Vec<Seen> {
    // What is not of this batch.
    for at in (WORD..SLOT_BYTES).step_by(WORD) {
        scene.requests.store(buffer(scene.sequence) + at, 0xeeee_eeee_eeee_eeee, Ordering::Relaxed);
    }
    let (before, end) = (scene.sequence, 1 + words.len() - cut);
    scene.write(words, &Signal::Batch(1, end as u16));
    scene.serve(node, fibers);
    assert_eq!(scene.sequence, before + 1, "the batch is answered");
    SEEN.take()
}

/// The calls that look ahead: one returns nothing, the other shows a part of the property.
pub(crate) fn closures(scene: &mut Scene, place: Place<'_>) -> [u32; 2] {
    let calls = [1, 2].map(|number| Arguments::new(number, 5));
    // The table may have a call more than once.
    let mut found = [None; 2];
    for closure in 0..1000 {
        let seen = serve(scene, place, &batch(closure, &calls), 0);
        if seen.iter().all(|(step, ..)| *step != 0) {
            continue;
        }
        let shows = scene.answered().windows(3).any(|bytes| bytes == [SHOWN; 3]);
        found[usize::from(shows)].get_or_insert(closure);
    }
    found.map(|closure| closure.expect("a call of lent arguments that looks ahead"))
}

/// What is seen of calls that are looked at together.
fn of_group(calls: &[Arguments]) -> Vec<Seen> {
    (0..3).flat_map(|step| calls.iter().map(move |call| call.seen(step))).collect()
}

#[test]
fn lent_arguments_are_those_that_were_looked_at() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        let place = (node, fibers);
        let closures = closures(scene, place);
        // On the stack of the trustee, and in memory of its thread.
        for (closure, len) in closures.into_iter().flat_map(|id| [1, 4, 300].map(|len| (id, len))) {
            let calls: Vec<_> =
                (1..=GROUP as u64).map(|number| Arguments::new(number, len)).collect();
            let words = batch(closure, &calls);
            let (slot, first, end) =
                (scene.requests.clone(), buffer(scene.sequence) + WORD, words.len());
            let overwrite = move || {
                (0..end).for_each(|word| slot.store(first + word * WORD, !0, Ordering::Relaxed));
            };
            AT_FIRST_LOOK.set(Some(Box::new(overwrite)));
            assert_eq!(serve(scene, place, &words, 0), of_group(&calls), "{len} bytes");
            assert!(AT_FIRST_LOOK.take().is_none(), "the peer has written");
        }
    });
}

#[test]
fn lent_arguments_end_with_their_request() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        let place = (node, fibers);
        let closures = closures(scene, place);
        // To the end of the group, of the slot, of what is copied, of memory.
        let lies = [1, 7, 8, 100, 2000, 8192, 1 << 16, 1 << 24, u32::MAX - 400];
        for (closure, len) in
            closures.into_iter().flat_map(|id| [1, 4, 20, 300].map(|len| (id, len)))
        {
            let honest = |number| Arguments::new(number, len);
            for count in [1, 2, GROUP as u64, GROUP as u64 + 1] {
                let calls: Vec<_> = (1..=count).map(honest).collect();
                let words = batch(closure, &calls);
                let called = |seen: &[Seen]| seen.iter().filter(|(step, ..)| *step == 2).count();
                assert_eq!(called(&serve(scene, place, &words, 0)), calls.len());
                // The last one is cut off: it is refused if something of its value is missing.
                let each = words.len() / calls.len();
                for cut in 1..each {
                    let seen = serve(scene, place, &words, cut);
                    check(&seen, &calls);
                    assert_eq!(called(&seen), calls.len() - 1, "{len} bytes, {cut} words less");
                }
                for wrong in 0..calls.len() {
                    for lie in lies {
                        for (more, trusts) in
                            [((lie, 0), 0), ((0, lie), 0), ((lie, lie), 0), ((0, 0), 1)]
                        {
                            let mut calls = calls.clone();
                            (calls[wrong].more, calls[wrong].trusts) = (more, trusts);
                            let seen = serve(scene, place, &batch(closure, &calls), 0);
                            check(&seen, &calls);
                            // The value may claim the padding after it, which is its request's own.
                            let is_whole =
                                more == (lie, lie) && lie as usize <= room(&calls[wrong]);
                            let wanted = calls.len() - usize::from(!is_whole);
                            assert_eq!(called(&seen), wanted, "{len} bytes, {more:?} {trusts}");
                        }
                    }
                }
            }
        }
    });
}

/// Bytes of a call after its value.
fn room(call: &Arguments) -> usize {
    (8 + 4 + call.len).next_multiple_of(WORD) - (8 + 4 + call.len)
}

/// Checks that only bytes of the calls themselves were seen.
fn check(seen: &[Seen], calls: &[Arguments]) {
    for (step, number, bytes) in seen {
        let call = calls.iter().find(|call| call.number == *number).expect("one of the calls");
        let is_its_own =
            bytes.len() <= call.len + room(call) && bytes.iter().all(|byte| *byte == call.byte);
        assert!(is_its_own, "step {step} of call {number} saw {bytes:?}");
    }
}

#[test]
fn lent_arguments_that_change_meanwhile_are_seen_one_way() {
    const BATCHES: usize = 3000;
    fill_table();
    Scene::with(|scene, node, fibers| {
        let closures = closures(scene, (node, fibers));
        let calls: Vec<_> = (1..=GROUP as u64).map(|number| Arguments::new(number, 40)).collect();
        let batches = closures.map(|closure| batch(closure, &calls));
        let is_done = Arc::new(AtomicBool::new(false));
        let scribbler = {
            let (slot, words, is_done) =
                (scene.requests.clone(), batches[0].len(), is_done.clone());
            thread::spawn(move || scribble(&slot, words, &is_done))
        };
        let mut looked = 0;
        for words in batches.iter().cycle().take(BATCHES) {
            scene.write(words, &Signal::Batch(1, 1 + words.len() as u16));
            // It may write the signal's claims over, too, but not the signal.
            scene.serve(node, fibers);
            looked += is_consistent(&SEEN.take());
        }
        is_done.store(true, Relaxed);
        scribbler.join().expect("no panic");
        assert!(looked > 0, "no group was looked at");
    });
}

/// Writes to the words of both buffers after the signal, without end.
fn scribble(slot: &SharedBytes, words: usize, is_done: &AtomicBool) {
    let mut number = 1_u64;
    while !is_done.load(Relaxed) {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = 1 + (number >> 40) as usize % words;
        let at = buffer(number >> 33) + word * WORD;
        // Of a value, mostly: a wrong head ends the group.
        let old = slot.load(at, Ordering::Relaxed);
        slot.store(at, old ^ (1 << (number >> 58)), Ordering::Relaxed);
    }
}

/// Checks that each call had what both looks at it had; how many groups there were.
fn is_consistent(mut seen: &[Seen]) -> usize {
    let mut groups = 0;
    while let Some((first, ..)) = seen.first() {
        if *first == 2 {
            // Of a request by itself.
            seen = &seen[1..];
            continue;
        }
        let count = seen.iter().take_while(|(step, ..)| *step == 0).count();
        let (looks, rest) = seen.split_at(3 * count);
        let of = |step: usize| {
            looks[step * count..][..count].iter().map(|(_, number, bytes)| (*number, bytes))
        };
        assert!(of(0).eq(of(1)) && of(0).eq(of(2)), "{looks:?}");
        (seen, groups) = (rest, groups + 1);
    }
    groups
}

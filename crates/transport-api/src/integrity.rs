//! Integrity checks of what a write brings to memory that is not mapped.
//!
//! The bytes of one write have no order: a word that says that data is there may be there before the
//! data. A second write, for that word alone, says it surely and costs as much as the first
//! (`docs/decisions/0022-batch-checksum.md`). So what must arrive whole travels as one write with a word
//! behind it, the checksum of all the others:
//!
//! ```text
//!   | word 0 | word 1 | ... | word n - 1 | checksum of words 0 to n - 1 |
//! ```
//!
//! A reader copies all of it, and then checks its copy: until [`is_intact`], something is still on
//! its way. A mixture of old and new words passes with the probability that two random words are
//! equal. This is no protection against a malicious peer, which can write any words with their
//! checksum.

use primitive::sync::Ordering;
use primitive::{SharedBytes, Words};

/// Two words without pattern, so that small numbers, which most words are, become large ones.
const SALT: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];

/// Words from which a checksum has four chains.
const CHAINED: usize = 16;

/// Words of a round of the four chains.
const ROUND: usize = 8;

/// The checksum of `count` words of `memory` from word `start` on.
///
/// ```
/// use gossamer_transport_api::integrity::{checksum, is_intact};
/// use primitive::{SharedBytes, sync::Ordering};
/// let memory = SharedBytes::heap(32);
/// memory.write_from(0, b"three words, and what proves it.");
/// assert!(!is_intact(&memory, 0, 3));
/// memory.store(24, checksum(&memory, 0, 3), Ordering::Relaxed);
/// assert!(is_intact(&memory, 0, 3));
/// ```
///
/// # Panics
/// If the words are not inside the memory.
#[inline]
pub fn checksum(memory: &SharedBytes, start: usize, count: usize) -> u64 {
    let words = memory.words().part(start, count);
    if count < CHAINED {
        return chain(0, count, |at| words.load(at, Ordering::Relaxed));
    }
    checksum_of_many(words)
}

/// As [`checksum`], of at least [`CHAINED`] words; in a function of its own, so that few words need not
/// save its registers.
#[inline(never)]
fn checksum_of_many(words: Words<'_>) -> u64 {
    let mut chains = Chains::new(words.len());
    let mut rounds = words.records(0, ROUND);
    while rounds.left() > 0 {
        chains.add(|at| rounds.load(at));
        rounds.pass();
    }
    chains.end(|at| words.load(at, Ordering::Relaxed))
}

/// As [`checksum`], of `count` words that are elsewhere: `word` is asked for each of them once, in
/// order.
#[inline(always)]
pub fn checksum_of(count: usize, word: impl Fn(usize) -> u64) -> u64 {
    if count < CHAINED {
        return chain(0, count, word);
    }
    let mut chains = Chains::new(count);
    for start in (0..count - count % ROUND).step_by(ROUND) {
        chains.add(|at| word(start + at));
    }
    chains.end(word)
}

/// The checksum of many words. Each link of one chain waits for the product before it; of four chains, to
/// which a round adds two words each, the processor multiplies for all at a time. *Measured*: 1 KiB in a
/// quarter of the time.
struct Chains {
    states: [u64; ROUND / 2],
    count: usize,
}

impl Chains {
    #[inline(always)]
    fn new(count: usize) -> Self {
        Self { states: [count as u64 ^ SALT[0]; ROUND / 2], count }
    }

    /// Adds the words of the next round.
    #[inline(always)]
    fn add(&mut self, word: impl Fn(usize) -> u64) {
        for (number, state) in self.states.iter_mut().enumerate() {
            *state = link(*state, word(2 * number), word(2 * number + 1));
        }
    }

    /// The checksum, once all rounds were added: the words behind them make a fifth chain.
    #[inline(always)]
    fn end(self, word: impl Fn(usize) -> u64) -> u64 {
        let rest = chain(self.count - self.count % ROUND, self.count, word);
        let [first, second, third, fourth] = self.states.map(|state| state ^ SALT[0]);
        mix(mix(first, second) ^ rest, mix(third, fourth))
    }
}

/// One chain, of the words from `start` up to `end`.
#[inline(always)]
fn chain(start: usize, end: usize, word: impl Fn(usize) -> u64) -> u64 {
    let mut state = (end - start) as u64 ^ SALT[0];
    let mut at = start;
    while at + 1 < end {
        state = link(state, word(at), word(at + 1));
        at += 2;
    }
    let state = if at < end { link(state, word(at), 0) } else { state };
    state ^ SALT[0]
}

/// Two words into one that depends on every bit of both.
#[inline(always)]
fn mix(first: u64, second: u64) -> u64 {
    link(SALT[0], first, second) ^ SALT[0]
}

/// Adds two words to a chain: the halves of their product, and themselves. Without the words, a `second`
/// that is the salt would make the product zero, and hide every word before it.
///
/// The first salt stays in the state from one link to the next, which saves two instructions of ten.
#[inline(always)]
fn link(state: u64, first: u64, second: u64) -> u64 {
    let first = state ^ first;
    let product = u128::from(first) * u128::from(second ^ SALT[1]);
    product as u64 ^ (product >> 64) as u64 ^ first ^ second
}

/// Whether the word behind `count` words from word `start` on is their checksum.
///
/// # Panics
/// If one of them is not inside the memory.
#[inline]
pub fn is_intact(memory: &SharedBytes, start: usize, count: usize) -> bool {
    memory.words().load(start + count, Ordering::Relaxed) == checksum(memory, start, count)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory(words: &[u64]) -> SharedBytes {
        let memory = SharedBytes::heap(words.len() * 8);
        for (at, word) in words.iter().enumerate() {
            memory.words().store(at, *word, Ordering::Relaxed);
        }
        memory
    }

    #[test]
    fn every_word_and_every_bit_counts() {
        // Words that are a salt make one factor of the product zero.
        for (count, word) in
            (1..8).flat_map(|count| [0, SALT[0], SALT[1]].map(|word| (count, word)))
        {
            let words = vec![word; count + 1];
            let whole = checksum(&memory(&words), 1, count);
            for at in 1..=count {
                for bit in 0..64 {
                    let mut other = words.clone();
                    other[at] ^= 1 << bit;
                    assert_ne!(checksum(&memory(&other), 1, count), whole, "{count} {at} {bit}");
                }
            }
        }
    }

    /// The definition of the checksum, which every implementation must match: other builds check the frames,
    /// batches and records that this one writes.
    fn defined(words: &[u64]) -> u64 {
        let mix = |first: u64, second: u64| {
            let product = u128::from(first ^ SALT[0]) * u128::from(second ^ SALT[1]);
            product as u64 ^ (product >> 64) as u64 ^ (first ^ second)
        };
        let add = |state, two: &[u64]| mix(state ^ two[0], two.get(1).copied().unwrap_or(0));
        let chain = |words: &[u64]| words.chunks(2).fold(words.len() as u64, add);
        if words.len() < 16 {
            return chain(words);
        }
        let (rounds, rest) = words.as_chunks::<8>();
        let [first, second, third, fourth] = std::array::from_fn(|number| {
            let twos = rounds.iter().map(|round| &round[2 * number..2 * number + 2]);
            twos.fold(words.len() as u64, add)
        });
        mix(mix(first, second) ^ chain(rest), mix(third, fourth))
    }

    proptest! {
        #[test]
        fn every_way_to_compute_it_gives_the_same(
            words in proptest::collection::vec(
                prop_oneof![any::<u64>(), 0..3_u64, Just(SALT[0]), Just(SALT[1])], 0..200),
            start in 0_usize..9,
        ) {
            let expected = defined(&words);
            let shared = memory(&[&vec![1; start], &words[..], &[expected]].concat());
            prop_assert_eq!(checksum_of(words.len(), |at| words[at]), expected);
            prop_assert_eq!(checksum(&shared, start, words.len()), expected);
            prop_assert!(is_intact(&shared, start, words.len()));
        }
    }

    #[test]
    fn every_word_of_many_and_its_place_count() {
        let of = |words: &[u64]| checksum_of(words.len(), |at| words[at]);
        for (count, word) in
            (1..40).flat_map(|count| [0, 7, SALT[0], SALT[1]].map(|word| (count, word)))
        {
            let words = vec![word; count];
            assert_ne!(of(&words), of(&vec![word; count + 1]), "{count} words {word}");
            for at in 0..count {
                for bit in 0..64 {
                    let mut other = words.clone();
                    other[at] ^= 1 << bit;
                    assert_ne!(of(&other), of(&words), "{count} {at} {bit}");
                    // The same word in the next chain. Where a word is a salt, its product is zero.
                    let mut moved = words.clone();
                    moved[(at + 2) % count] ^= 1 << bit;
                    let is_same = (at + 2) % count == at || SALT.contains(&word);
                    assert!(is_same || of(&moved) != of(&other), "{count} {at} {bit}");
                }
            }
        }
    }
}

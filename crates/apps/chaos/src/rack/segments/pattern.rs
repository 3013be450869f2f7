//! What is in a segment of the workload: words that show whether they are whole.
//!
//! ```text
//!   word 0        the generation, sealed, written by the owner once it has exported
//!   COUNTERS      fetch_add adds multiples of a number whose halves are equal
//!   OWN           each importer writes one, which no other writes
//!   RECORD        a record that the owner writes again and again
//!   FREE ..       written by all: sealed numbers
//! ```

use std::ops::Range;

use gossamer::segment::Record;

/// Bytes of a segment. A block operation on all of it has several parts, and where memory is mapped
/// takes long enough that revocations come in its midst.
pub(super) const LEN: usize = 512 << 10;
/// Words of a segment.
pub(super) const WORDS: usize = LEN / 8;
/// The words that are counters.
pub(super) const COUNTERS: Range<usize> = 1..16;
/// The words that belong to one importer each.
pub(super) const OWN: Range<usize> = 16..64;
/// The words of the record.
pub(super) const RECORD: Range<usize> = OWN.end..OWN.end + Record::<Value>::BYTES / 8;
/// The words that all write.
pub(super) const FREE: Range<usize> = RECORD.end..WORDS;

/// The value of the record: larger than a cache line.
pub(super) type Value = [u64; 12];

/// The value that the owner writes as this version.
pub(super) fn value_of(version: u64) -> Value {
    std::array::from_fn(|at| seal(version as u32) + at as u64)
}

/// Memory that was revoked is filled with this: no word that is ever written to a segment.
pub(super) const CANARY: u8 = 0xc5;

/// The word of a number and its hash.
pub(super) fn seal(number: u32) -> u64 {
    u64::from(number) << 32 | u64::from(number.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995)
}

/// Whether a word is as [`seal`] makes it, or was never written.
pub(super) fn is_sealed(word: u64) -> bool {
    word == 0 || word == seal((word >> 32) as u32)
}

/// What adds `amount` to a counter: to both halves of it.
pub(super) fn addend(amount: u32) -> u64 {
    u64::from(amount) << 32 | u64::from(amount)
}

/// Whether a word may be that of a counter.
pub(super) fn is_counter(word: u64) -> bool {
    word >> 32 == word & 0xffff_ffff
}

/// The words of `bytes`, whose number is a multiple of eight.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
}

/// The first torn word among `words`, of which the first is word `start` of a segment.
pub(super) fn first_torn(words: impl Iterator<Item = u64>, start: usize) -> Option<(usize, u64)> {
    let is_whole = |(at, word): &(usize, u64)| match at {
        at if COUNTERS.contains(at) => is_counter(*word),
        // It has words of any kind, and a checksum.
        at if RECORD.contains(at) => *word != u64::from_ne_bytes([CANARY; 8]),
        _ => is_sealed(*word),
    };
    (start..).zip(words).find(|word| !is_whole(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_of_two_words_is_torn() {
        let (old, new) = (seal(7), seal(8));
        assert!(is_sealed(old) && is_sealed(new) && is_sealed(0));
        for bytes in 1..8 {
            let mask = u64::MAX >> (8 * bytes);
            let mixture = old & mask | new & !mask;
            // Numbers that differ little share bytes.
            assert!(mixture == old || mixture == new || !is_sealed(mixture), "{bytes}");
        }
        assert!(!is_sealed(old >> 32 << 32), "the other half was not written");
        assert!(is_counter(addend(3) + addend(u32::MAX - 3)));
        assert!(!is_counter(addend(3) & 0xffff_ffff));
    }

    #[test]
    fn a_torn_word_is_found_where_it_is() {
        let mut memory = vec![0; WORDS];
        memory[COUNTERS.start] = addend(9);
        memory[FREE.start] = seal(3);
        assert_eq!(first_torn(memory.iter().copied(), 0), None);
        memory[FREE.start + 1] = 9;
        assert_eq!(first_torn(memory.iter().copied(), 0), Some((FREE.start + 1, 9)));
        let tail = memory[FREE.start..].iter().copied();
        assert_eq!(first_torn(tail, FREE.start), Some((FREE.start + 1, 9)));
    }
}

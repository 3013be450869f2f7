//! Words of a text, counted in a map that is sharded over the threads of a rack.

use std::collections::HashMap;
use std::sync::LazyLock;

use gossamer::{Rack, Sharded};

use super::sample::{Load, StopFlag, measure_rack};
use crate::harness::{Case, Unit};
use crate::measure::watch::WaitMode;
use crate::work::next;

/// Words of the text.
const WORDS: usize = 1_000_000;
/// Different words.
const VOCABULARY: usize = 20_000;
/// Words between two looks at the flag that ends the work.
const BURST: usize = 1_000;

/// A text of words of 2 to 11 letters with a space after each. The n-th word of the vocabulary is n
/// times rarer than the first, as in a text that people write (Zipf's law).
pub static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut seed = 1;
    let mut below = |limit: usize| {
        seed = next(seed);
        ((u128::from(seed) * limit as u128) >> 64) as usize
    };
    let vocabulary: Vec<String> = (0..VOCABULARY)
        .map(|rank| {
            // Frequent words are short.
            let letters = 2 + (rank + 1).ilog2() as usize / 3 + below(6);
            (0..letters).map(|_| char::from(b'a' + below(26) as u8)).collect()
        })
        .collect();
    let mut total = 0.0;
    let upto: Vec<f64> = (1..=VOCABULARY)
        .map(|rank| {
            total += 1.0 / rank as f64;
            total
        })
        .collect();
    let mut text = String::new();
    for _ in 0..WORDS {
        let chance = below(1 << 32) as f64 / (1u64 << 32) as f64 * total;
        let rank = upto.partition_point(|upto| *upto < chance);
        text += &vocabulary[rank.min(VOCABULARY - 1)];
        text.push(' ');
    }
    text
});

/// Has `count` called with the words of the text, from the place that belongs to thread `index` of
/// `threads` on, again and again until `is_over` says so, which is asked now and then; returns the
/// number of words.
pub fn count_words(
    (index, threads): (usize, usize),
    mut is_over: impl FnMut() -> bool,
    mut count: impl FnMut(&str),
) -> u64 {
    let start = TEXT.len() * index / threads;
    let start = TEXT[start..].find(' ').map_or(0, |space| start + space + 1);
    let (before, behind) = TEXT.split_at(start);
    let mut words = behind.split_terminator(' ').chain(before.split_terminator(' ')).cycle();
    let mut counted = 0;
    while !is_over() {
        words.by_ref().take(BURST).for_each(&mut count);
        counted += BURST as u64;
    }
    counted
}

/// A shard: the counts, and how many words it has counted.
#[derive(Default)]
struct Shard {
    counts: HashMap<String, u64>,
    words: u64,
}

impl Shard {
    #[inline]
    fn count(&mut self, word: &str) {
        self.words += 1;
        match self.counts.get_mut(word) {
            Some(count) => *count += 1,
            None => _ = self.counts.insert(word.to_owned(), 1),
        }
    }
}

/// How a word gets to its shard.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Collected by shard: `Sharded::scatter`.
    Scatter,
    /// A request for each: `apply_with_then`.
    Each,
}

/// A rack of `threads` threads, each of which counts a part of the text.
pub fn counted(threads: u32, way: Way) -> Case {
    let name = match way {
        Way::Scatter => "scatter",
        Way::Each => "apply_with_then",
    };
    let plural = if threads == 1 { "" } else { "s" };
    Case::new(format!("gossamer/{name}, {threads} thread{plural}"), Unit::Mops, move |sampler| {
        LazyLock::force(&TEXT);
        let rack = Rack::new().threads(threads).pin(true);
        measure_rack(rack, sampler.time, move || start(way))?.mops()
    })
}

fn start(way: Way) -> Load {
    let words = Sharded::<String, Shard>::new(Shard::default);
    let (stop, threads) = (StopFlag::default(), gossamer::threads().len());
    let begin = |index: usize| {
        let (words, stop) = (words.clone(), stop.clone());
        gossamer::spawn(move || {
            let mut scatter = words.scatter(|shard, word, ()| shard.count(word));
            count_words(
                (index, threads),
                || stop.is_set(),
                |word| match way {
                    Way::Scatter => scatter.send(word, ()),
                    Way::Each => {
                        let count = |shard: &mut Shard, word: String| shard.count(&word);
                        words.shard(word).apply_with_then(count, word.to_owned(), drop);
                    }
                },
            );
            scatter.finish();
        })
    };
    // They go to the threads in turn.
    let fibers = (0..threads).map(begin).collect();
    let done = move || words.reduce(|shard| shard.words, |a, b| a + b);
    Load { stop, fibers, done: Box::new(done), others: WaitMode::Polls }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_zipfian_and_every_thread_counts_all_of_it() {
        assert_eq!(TEXT.split_terminator(' ').count(), WORDS);
        for (index, threads) in [(0, 1), (0, 2), (1, 2)] {
            let mut shard = Shard::default();
            let mut bursts = 0..WORDS / BURST;
            let is_over = || bursts.next().is_none();
            let counted = count_words((index, threads), is_over, |word| shard.count(word));
            assert_eq!((counted, shard.words), (WORDS as u64, WORDS as u64));
            let mut counts: Vec<u64> = shard.counts.into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let ratio = counts[0] as f64 / counts[9] as f64;
            assert!((8.0..12.0).contains(&ratio), "the first word is {ratio} times the tenth");
            assert!(counts.len() > VOCABULARY * 9 / 10, "{} words", counts.len());
        }
    }
}

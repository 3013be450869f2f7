//! Counts the words of a text on all threads of a rack: `cargo run --release -p gossamer-rack --example
//! word_count -- --threads 2 FILE` prints the ten most frequent.
//!
//! Every thread reads a part of the text and sends each word to the thread whose map counts it. Sent one
//! by one they would each cost a request; a `Scatter` collects them by shard and sends them together.

use std::collections::HashMap;

use gossamer::{Rack, Sharded, Team};

type Words = Sharded<String, HashMap<String, u64>>;

/// Has the words of `text` counted where they belong.
fn count(words: &Words, text: &str) {
    let mut counts = words.scatter(|map, word, times| match map.get_mut(word) {
        Some(count) => *count += times,
        None => _ = map.insert(word.to_owned(), times), // only now is the word copied
    });
    text.split_whitespace().for_each(|word| counts.send(word, 1));
    counts.finish();
}

/// The part of `text` that member `index` of `len` reads: whole words.
fn part(text: &str, index: usize, len: usize) -> &str {
    let border = |index: usize| {
        let at = text.ceil_char_boundary(text.len() * index / len);
        text[at..].find(char::is_whitespace).map_or(text.len(), |space| at + space)
    };
    let start = if index == 0 { 0 } else { border(index) };
    &text[start..border(index + 1)]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().next_back().expect("a file");
    let rack = Rack::from_args()?;
    rack.run(move || {
        let words = Words::new(HashMap::new);
        let text = std::fs::read_to_string(file)?;
        let read = |team: &Team, (words, text): (Words, String)| {
            count(&words, part(&text, team.index(), team.len()));
        };
        Team::run(read, (words.clone(), text));
        let mut all = words.gather(|map| Vec::from_iter(map.drain())).concat();
        all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.iter().take(10).for_each(|(word, count)| println!("{count:8} {word}"));
        Ok::<_, std::io::Error>(())
    })??;
    Ok(())
}

//! Asks for a counter.

jam::import! {
    fn words_get(word: &[u8]) -> u64;
}

/// How often the word was counted.
pub fn word(word: &[u8]) -> u64 {
    words_get(word)
}

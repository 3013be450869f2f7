//! Has the words of a text counted.

jam::import! {
    fn words_count(text: &[u8]) -> u64;
}

/// How many words there are.
pub fn count_words(text: &[u8]) -> u64 {
    words_count(text)
}

//! Counters by word, which a host has that was built without them: functions, and data of their own.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

ried::interface! {
    export {
        /// Counts each word of a text; how many there are.
        pub fn words_count(text: &[u8]) -> u64 {
            let text = String::from_utf8_lossy(text);
            let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
            let words = text.split_whitespace();
            words.map(|word| *counters.entry(word.to_lowercase()).or_insert(0) += 1).count() as u64
        }

        /// How often a word was counted.
        pub fn words_get(word: &[u8]) -> u64 {
            let word = String::from_utf8_lossy(word).to_lowercase();
            let counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
            counters.get(&word).copied().unwrap_or(0)
        }
    }
    start = begin;
}

static COUNTERS: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);

fn begin(host: &ried::Host) -> Result<(), String> {
    host.log("this host counts words");
    Ok(())
}

//! [`Keys`]: the keys of a retrieval, in one piece of memory.

use std::fmt;

use crate::store::Key;

/// The keys of a retrieval, in order. A line can have half a million keys, so they stay in one piece
/// of memory as they came, and are taken out one by one.
///
/// ```
/// use gossamer_kv_store::memcached::Keys;
/// let mut keys = Keys::new(b"a  bc ");
/// assert_eq!(keys.next_key(), Some(&b"a"[..]));
/// assert!(!keys.is_empty());
/// assert_eq!(keys.next_key(), Some(&b"bc"[..]));
/// assert!(keys.is_empty());
/// ```
#[derive(Clone)]
pub struct Keys {
    /// A key's memory: one short key, the usual retrieval, allocates nothing.
    words: Key,
    /// Bytes that were taken, with the spaces behind them.
    taken: usize,
}

impl Keys {
    /// The words of `text`, which spaces separate.
    pub fn new(text: &[u8]) -> Self {
        let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
        Self { words: Key::new(&text[start..]), taken: 0 }
    }

    fn skip_spaces(&mut self) {
        let rest = &self.words[self.taken..];
        self.taken += rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len());
    }

    /// Takes the next key.
    pub fn next_key(&mut self) -> Option<&[u8]> {
        let start = self.taken;
        let rest = &self.words[start..];
        let length = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        self.taken += length;
        self.skip_spaces();
        (length > 0).then(|| &self.words[start..start + length])
    }

    /// Whether all keys were taken.
    pub fn is_empty(&self) -> bool {
        self.taken == self.words.len()
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.words[self.taken..] == other.words[other.taken..]
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({:?})", String::from_utf8_lossy(&self.words[self.taken..]))
    }
}

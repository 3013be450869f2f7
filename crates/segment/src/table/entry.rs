//! [`Entry`]: the registry's entry of one name, and its 16 words in a slot of the table.
//!
//! ```text
//!   word 0        kind | notify << 8 | bytes of the name << 16 | thread << 32
//!   word 1        generation
//!   words 2..7    a segment: region key, length; a trust: its id; then zero
//!   words 7..15   the name, and zeroes behind it
//!   word 15       checksum of words 0..15
//! ```
//!
//! A slot whose words are all zero is empty. One whose entry was removed, while other names are
//! found by looking past it, holds a tombstone: its kind, and otherwise zeroes and the checksum.
//!
//! Only the kind of an empty slot is zero, so a mixture of an empty slot and any other content is
//! never all zero without being the empty slot. Every other mixture fails the checksum
//! (`transport_api::integrity`). That is why the words may be stored and arrive in any order.
//!
//! Everything that is decoded here was written by a peer, and every bit of it is checked: a slot that
//! decodes has no other encoding.

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;

use std::fmt;

use primitive::limits::THREADS_PER_HOST;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::integrity::checksum_of;
use transport_api::{Namespace, RegionKey};

use crate::name::{InvalidName, Name};

/// Words of a slot.
pub const ENTRY_WORDS: usize = 16;

/// Bytes of a slot: two cache lines.
pub const ENTRY_BYTES: usize = 8 * ENTRY_WORDS;

/// The words of a slot.
pub type EntryWords = [u64; ENTRY_WORDS];

/// Where the name begins.
const NAME: usize = 7;
/// Where the checksum is.
const CHECKSUM: usize = ENTRY_WORDS - 1;

/// The kinds of content. Zero is that of an empty slot.
const SEGMENT: u8 = 1;
const TRUST: u8 = 2;
const DELETED: u8 = 3;

/// The entry of a name in the registry of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// Higher than that of every earlier export of the name by this host.
    pub generation: u32,
    /// The object that the name stands for.
    pub what: Published,
}

/// The object that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Memory.
    Segment {
        /// The key of its region, in [`Namespace::SEGMENTS`].
        key: RegionKey,
        /// Its bytes, at least one.
        len: u64,
        /// Which writes notify its owner.
        notify: Notify,
        /// The thread of its owner that is notified.
        thread: u32,
    },
    /// A trust, which its owner hands to every host that asks.
    Trust {
        /// The thread of the owner to ask.
        thread: u32,
        /// The number of the publication.
        id: u64,
    },
}

/// Which operations on a segment notify its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notify {
    /// All that write.
    Always,
    /// None: those that request a notification are carried out without it, and the owner cannot wait
    /// for one.
    Never,
    /// Those that request it.
    Conditional,
}

/// The content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Nothing: a lookup ends here.
    Empty,
    /// A tombstone: a lookup continues with the next slot.
    Deleted,
    /// An entry.
    Entry(Entry),
}

/// Why the words of a slot could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SlotError {
    /// They were read while the owner wrote them.
    #[error("torn entry: it was read while its owner wrote it; read it again")]
    Torn,
    /// The owner wrote an entry that no host of this build writes.
    #[error("malformed entry")]
    Malformed(#[source] Malformed),
}

/// What is wrong with an entry whose checksum is right.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Malformed {
    /// There is no such kind.
    #[error("unknown kind {0}: expected 1 to 3")]
    Kind(u8),
    /// There is no such kind of notification.
    #[error("unknown notification {0}: expected 0 to 2")]
    Notify(u8),
    /// No host has such a thread.
    #[error("thread {0} out of range: expected less than {THREADS_PER_HOST}")]
    Thread(u32),
    /// It is not the key of a segment.
    #[error("invalid segment key {0:?}: expected a nonzero number in the segments' name space")]
    Key(RegionKey),
    /// No segment is so long.
    #[error("segment of {0} bytes: expected 1 to {max}", max = MAX_LEN)]
    Len(u64),
    /// No name is so long.
    #[error("name of {0} bytes: expected 1 to {max}", max = Name::MAX_LEN)]
    NameLen(u8),
    /// The name is invalid.
    #[error("entry without a valid name")]
    Name(#[source] InvalidName),
    /// The name is not text.
    #[error("entry whose name is not ASCII")]
    NotAscii,
    /// Bits without a meaning are set.
    #[error("word {word} is {value:#x}: expected zeroes in its reserved bits")]
    Reserved {
        /// Which word of the slot.
        word: usize,
        /// Its value.
        value: u64,
    },
}

/// Bytes of a segment, at most.
const MAX_LEN: u64 = isize::MAX as u64;

/// The first word, taken apart.
struct Head {
    kind: u8,
    notify: u8,
    name_len: u8,
    thread: u32,
}

impl Head {
    fn word(&self) -> u64 {
        let [kind, notify, name_len] = [self.kind, self.notify, self.name_len].map(u64::from);
        kind | notify << 8 | name_len << 16 | u64::from(self.thread) << 32
    }

    fn of(word: u64) -> Result<Self, Malformed> {
        let [kind, notify, name_len, reserved, thread @ ..] = word.to_le_bytes();
        if reserved != 0 {
            return Err(Malformed::Reserved { word: 0, value: word });
        }
        Ok(Self { kind, notify, name_len, thread: u32::from_le_bytes(thread) })
    }
}

impl Notify {
    /// Whether an operation that writes notifies the owner; `is_requested`: its caller asks for that.
    pub(crate) fn applies(self, is_requested: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Conditional => is_requested,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Always => 0,
            Self::Never => 1,
            Self::Conditional => 2,
        }
    }

    fn of(code: u8) -> Result<Self, Malformed> {
        match code {
            0 => Ok(Self::Always),
            1 => Ok(Self::Never),
            2 => Ok(Self::Conditional),
            _ => Err(Malformed::Notify(code)),
        }
    }
}

impl Published {
    /// The thread of the owner that is notified or asked.
    pub fn thread(&self) -> u32 {
        match self {
            Self::Segment { thread, .. } | Self::Trust { thread, .. } => *thread,
        }
    }

    /// Kind, notification, and two words.
    fn encode(&self) -> (u8, u8, [u64; 2]) {
        match *self {
            Self::Segment { key, len, notify, .. } => (SEGMENT, notify.code(), [key.0, len]),
            Self::Trust { id, .. } => (TRUST, 0, [id, 0]),
        }
    }

    fn decode(head: &Head, [first, second]: [u64; 2]) -> Result<Self, Malformed> {
        let thread = head.thread;
        if thread as usize >= THREADS_PER_HOST {
            return Err(Malformed::Thread(thread));
        }
        match head.kind {
            SEGMENT => {
                let (key, len, notify) = (RegionKey(first), second, Notify::of(head.notify)?);
                if key.namespace() != Namespace::SEGMENTS || key.number() == 0 {
                    return Err(Malformed::Key(key));
                }
                if len == 0 || len > MAX_LEN {
                    return Err(Malformed::Len(len));
                }
                Ok(Self::Segment { key, len, notify, thread })
            }
            TRUST if head.notify != 0 => Err(Malformed::Notify(head.notify)),
            TRUST if second != 0 => Err(Malformed::Reserved { word: 3, value: second }),
            TRUST => Ok(Self::Trust { thread, id: first }),
            kind => Err(Malformed::Kind(kind)),
        }
    }
}

impl Entry {
    /// The words of its slot.
    pub fn encode(&self) -> EntryWords {
        let (kind, notify, payload) = self.what.encode();
        let name_len = self.name.as_bytes().len() as u8;
        let mut words = [0; ENTRY_WORDS];
        words[0] = Head { kind, notify, name_len, thread: self.what.thread() }.word();
        words[1] = u64::from(self.generation);
        words[2..4].copy_from_slice(&payload);
        let name = self.name.padded().as_chunks().0;
        for (word, bytes) in words[NAME..CHECKSUM].iter_mut().zip(name) {
            *word = u64::from_ne_bytes(*bytes);
        }
        sealed(words)
    }

    fn decode(head: &Head, words: &EntryWords) -> Result<Self, Malformed> {
        let (generation, what) = Self::decode_object(head, words)?;
        let mut bytes = [0; Name::MAX_LEN];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(&words[NAME..CHECKSUM]) {
            *bytes = word.to_ne_bytes();
        }
        let len = usize::from(head.name_len);
        if len == 0 || len > Name::MAX_LEN {
            return Err(Malformed::NameLen(head.name_len));
        }
        let text = str::from_utf8(&bytes[..len]).map_err(|_| Malformed::NotAscii)?;
        let name = Name::new(text).map_err(Malformed::Name)?;
        // Compared at once, which is faster than to look at each byte behind the name.
        if *name.padded() != bytes {
            let at = bytes.iter().zip(name.padded()).position(|(byte, own)| byte != own);
            let word = NAME + at.unwrap_or(len) / 8;
            return Err(Malformed::Reserved { word, value: words[word] });
        }
        Ok(Self { name, generation, what })
    }

    /// The generation and the object: all of an entry but its name.
    #[inline]
    fn decode_object(head: &Head, words: &EntryWords) -> Result<(u32, Published), Malformed> {
        let generation = u32::try_from(words[1])
            .map_err(|_| Malformed::Reserved { word: 1, value: words[1] })?;
        let what = Published::decode(head, [words[2], words[3]])?;
        only_zeroes(words, 4..NAME)?;
        Ok((generation, what))
    }

    /// The generation and object of the entry of `name`, if these words are that entry and
    /// [`is_intact`]. To compare with a valid name is faster than to validate the one that was read.
    #[inline]
    pub(crate) fn decode_of(name: &Name, words: &EntryWords) -> Option<(u32, Published)> {
        let padded = name.padded().as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let differ =
            padded.zip(&words[NAME..CHECKSUM]).fold(0, |all, (own, word)| all | (own ^ word));
        let head = Head::of(words[0]).ok()?;
        let is_it = differ == 0 && usize::from(head.name_len) == name.as_bytes().len();
        if is_it { Self::decode_object(&head, words).ok() } else { None }
    }
}

/// Whether the words of a slot that is not empty were read between two writes.
#[inline]
pub(crate) fn is_intact(words: &EntryWords) -> bool {
    checksum_of(CHECKSUM, |at| words[at]) == words[CHECKSUM]
}

impl Slot {
    /// The words of the slot.
    pub fn encode(&self) -> EntryWords {
        match self {
            Self::Empty => [0; ENTRY_WORDS],
            Self::Deleted => {
                let mut words = [0; ENTRY_WORDS];
                words[0] = Head { kind: DELETED, notify: 0, name_len: 0, thread: 0 }.word();
                sealed(words)
            }
            Self::Entry(entry) => entry.encode(),
        }
    }

    /// The content of a slot whose words were read one by one, in any order, while its owner may have
    /// written them.
    ///
    /// # Errors
    /// [`SlotError`].
    pub fn decode(words: &EntryWords) -> Result<Self, SlotError> {
        if words.iter().all(|word| *word == 0) {
            return Ok(Self::Empty);
        }
        if !is_intact(words) {
            return Err(SlotError::Torn);
        }
        Self::decode_intact(words).map_err(SlotError::Malformed)
    }

    /// As [`decode`](Self::decode), of the bytes of a slot as a READ brought them.
    ///
    /// # Errors
    /// [`SlotError`].
    pub fn decode_bytes(bytes: &[u8; ENTRY_BYTES]) -> Result<Self, SlotError> {
        let mut words = [0; ENTRY_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Self::decode(&words)
    }

    fn decode_intact(words: &EntryWords) -> Result<Self, Malformed> {
        let head = Head::of(words[0])?;
        if head.kind == DELETED {
            if head.word() != u64::from(DELETED) {
                return Err(Malformed::Reserved { word: 0, value: words[0] });
            }
            only_zeroes(words, 1..CHECKSUM)?;
            return Ok(Self::Deleted);
        }
        Entry::decode(&head, words).map(Self::Entry)
    }
}

/// The words with their checksum.
pub(crate) fn sealed(mut words: EntryWords) -> EntryWords {
    words[CHECKSUM] = checksum_of(CHECKSUM, |at| words[at]);
    words
}

fn only_zeroes(words: &EntryWords, range: std::ops::Range<usize>) -> Result<(), Malformed> {
    match range.clone().find(|word| words[*word] != 0) {
        Some(word) => Err(Malformed::Reserved { word, value: words[word] }),
        None => Ok(()),
    }
}

impl fmt::Display for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::Never => "never",
            Self::Conditional => "conditional",
        })
    }
}

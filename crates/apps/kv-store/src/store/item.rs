//! [`Item`]: key, data, memory size and expiry.

use std::sync::Arc;

use crate::store::data::Data;

/// Whole seconds since the Unix epoch.
pub type Seconds = u64;

/// Maximum length of a key in bytes (memcached's limit).
pub const KEY_BYTES_MAX: usize = 250;

/// Maximum size of an item in bytes, as memcached counts it; see [`is_too_large`].
pub const ITEM_BYTES_MAX: usize = 1 << 20;

/// Whether an item is larger than memcached 1.6.18 stores with its default `item_size_max`: there, an
/// item consists of a header, its unique number, client flags unless they are 0, and key and data
/// with their terminators.
///
/// ```
/// use gossamer_kv_store::store::is_too_large;
/// assert!(!is_too_large(1, 1_048_516, 0));
/// assert!(is_too_large(1, 1_048_517, 0));
/// assert!(is_too_large(1, 1_048_516, 7));
/// ```
pub fn is_too_large(key_bytes: usize, data_bytes: usize, flags: u32) -> bool {
    const HEADER: usize = 48 + 8;
    const TERMINATORS: usize = 1 + 2;
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    HEADER + TERMINATORS + key_bytes + flags_bytes + data_bytes > ITEM_BYTES_MAX
}

/// Expiry times above this are absolute: 30 days in seconds.
const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;

/// An expiry that is always in the past, for items stored as expired.
const LONG_AGO: Seconds = 1;

/// Converts a client's expiry time to a deadline; 0 is never.
///
/// ```
/// use gossamer_kv_store::store::item::deadline;
/// let now = 1_700_000_000;
/// assert_eq!(deadline(0, now), 0);
/// assert_eq!(deadline(60, now), now + 60);
/// assert_eq!(deadline(1_700_000_500, now), now + 500);
/// assert!(deadline(-1, now) < now);
/// ```
pub fn deadline(exptime: i32, now: Seconds) -> Seconds {
    match exptime {
        0 => 0,
        ..0 => LONG_AGO,
        1..=RELATIVE_MAX => now + exptime as Seconds,
        _ => exptime as Seconds,
    }
}

/// One item. Key and data share one allocation, so that lookup and read touch adjacent cache lines.
/// The other fields and the item's LRU links fit in one line:
///
/// ```text
///   bytes  | key (key_bytes) | data ... |
/// ```
///
/// Responses share the allocation (`shared`). While one does, a write makes a new allocation and
/// leaves the old one to the responses.
#[derive(Debug)]
pub struct Item {
    bytes: Arc<[u8]>,
    /// The unique number of this version (memcached's cas).
    pub(super) cas: u64,
    /// Hash of the key, kept so that growing the table reads only this field of items.
    pub(super) hash: u32,
    /// When the item expires, in seconds since the epoch; 0 is never. Lasts until the year 2106.
    expires: u32,
    /// The store's flush generation at the last write; see [`Item::is_flushed`].
    pub(super) generation: u32,
    pub(super) flags: u32,
    /// When the item was last used, as far as its order of use notes it; in seconds since the epoch.
    pub(super) used: u32,
    key_bytes: u8,
    marks: u8,
}

/// A mark of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    /// Read since it was stored.
    Fetched = 1,
    /// Read more than once since it was stored or last moved to another segment.
    Active = 2,
    /// Invalidated by a meta delete or a late meta set, so that one client recaches it.
    Stale = 4,
    /// A client was told to recache the item.
    TokenSent = 8,
    /// The client sent the key in base64, and gets it back so.
    BinaryKey = 16,
}

impl Item {
    /// An item without flags or expiry.
    ///
    /// # Panics
    /// If the key is longer than [`KEY_BYTES_MAX`].
    pub(super) fn new(key: &[u8], hash: u32, data: &[u8]) -> Self {
        let bytes = concat([key, data, &[]]);
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes", key.len());
        let key_bytes = key.len() as u8;
        Self {
            bytes,
            cas: 0,
            hash,
            expires: 0,
            generation: 0,
            flags: 0,
            used: 0,
            key_bytes,
            marks: 0,
        }
    }

    pub(super) fn is_marked(&self, mark: Mark) -> bool {
        self.marks & mark as u8 != 0
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        self.marks |= mark as u8;
    }

    pub(super) fn unmark(&mut self, mark: Mark) {
        self.marks &= !(mark as u8);
    }

    /// Removes all marks.
    pub(super) fn unmark_all(&mut self) {
        self.marks = 0;
    }

    /// Notes that the item was used at `now`.
    pub(super) fn set_used(&mut self, now: Seconds) {
        self.used = u32::try_from(now).unwrap_or(u32::MAX);
    }

    /// Seconds since the noted last use.
    pub(super) fn idle(&self, now: Seconds) -> u32 {
        u32::try_from(now.saturating_sub(self.used.into())).unwrap_or(u32::MAX)
    }

    /// When the item expires; 0 is never.
    pub(super) fn deadline(&self) -> Seconds {
        self.expires.into()
    }

    /// Seconds until the item expires; -1 if it does not. As in memcached, what has expired wraps
    /// around at 2^32.
    pub(super) fn ttl(&self, now: Seconds) -> i64 {
        match self.expires {
            0 => -1,
            at => i64::from(i64::from(at).saturating_sub_unsigned(now) as u32),
        }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_bytes)]
    }

    /// The data.
    pub fn data(&self) -> &[u8] {
        &self.bytes[usize::from(self.key_bytes)..]
    }

    /// Asks the processor for the key and the data.
    pub(super) fn prefetch(&self) {
        primitive::prefetch(&*self.bytes);
    }

    /// The data, for a response that can outlive the item.
    pub(super) fn shared(&self) -> Data {
        Data::after(Arc::clone(&self.bytes), usize::from(self.key_bytes))
    }

    /// The data, for changes in place; copied first if a response shares it.
    pub(super) fn data_mut(&mut self) -> &mut [u8] {
        &mut Arc::make_mut(&mut self.bytes)[usize::from(self.key_bytes)..]
    }

    /// Replaces the data, in place if the length is the same and no response shares the allocation.
    pub(super) fn set_data(&mut self, data: &[u8]) {
        if data.len() == self.data().len()
            && let Some(bytes) = Arc::get_mut(&mut self.bytes)
        {
            bytes[usize::from(self.key_bytes)..].copy_from_slice(data);
        } else {
            self.bytes = concat([self.key(), data, &[]]);
        }
    }

    /// Appends `data`, or prepends it if `before`.
    pub(super) fn extend_data(&mut self, data: &[u8], before: bool) {
        let parts = if before { [data, self.data()] } else { [self.data(), data] };
        self.bytes = concat([self.key(), parts[0], parts[1]]);
    }

    /// Whether the item has expired at `now`.
    pub fn is_expired(&self, now: Seconds) -> bool {
        self.expires != 0 && Seconds::from(self.expires) <= now
    }

    /// Makes the item expire at `deadline`; 0 is never.
    pub(super) fn set_deadline(&mut self, deadline: Seconds) {
        self.expires = u32::try_from(deadline).unwrap_or(u32::MAX);
    }

    /// Whether the item was written before the flush that started `generation`.
    pub(super) fn is_flushed(&self, generation: u32) -> bool {
        self.generation != generation
    }

    /// Memory in bytes used by the item, including its entries in the tables.
    pub(super) fn memory(&self) -> usize {
        Self::memory_for(self.bytes.len())
    }

    /// Memory in bytes used by an item with `content` bytes of key and data.
    pub(super) fn memory_for(content: usize) -> usize {
        // Index and control byte in a table that is at most 7/8 full, and half that after growing;
        // the allocator's header; the two reference counts in front of the bytes.
        const TABLES: usize = 16 + 16 + 16;
        std::mem::size_of::<crate::store::lru::Node<Item>>() + TABLES + content
    }
}

/// Concatenates the parts in one allocation.
fn concat(parts: [&[u8]; 3]) -> Arc<[u8]> {
    let length = parts.iter().map(|part| part.len()).sum();
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
    let mut rest = Arc::get_mut(&mut bytes).expect("nothing else refers to it yet");
    for part in parts {
        let (target, behind) = rest.split_at_mut(part.len());
        target.copy_from_slice(part);
        rest = behind;
    }
    bytes
}

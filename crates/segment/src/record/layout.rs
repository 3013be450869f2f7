//! [`Record`]: the layout of a record, its encoder and its decoder. One attempt to read a record
//! gives a value or [`Torn`]; `reader.rs` tries again.

use std::hint::cold_path;
use std::marker::PhantomData;

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};
use transport_api::integrity::checksum_of;
use transport_api::{OpError, Window};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(super) const WORD: usize = size_of::<u64>();

/// Words of a payload from which a copy of all of them is faster than loading each by itself.
const COPIED: usize = 32;

/// The message of the panic that refuses version 0.
const NEVER_WRITTEN: &str = "version 0 is that of a record that was never written: begin with 1";

/// A record that was torn each time it was read.
///
/// A writer that writes without pause can cause this, so reading again may help. If the writer
/// died in the middle of a write, a record stays torn until another writer writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "record torn in each of {attempts} attempts to read it: read it again, or, if its writer has \
     died, write it again"
)]
pub struct Torn {
    /// How often it was read.
    pub attempts: u32,
}

/// A record of one `T`: its layout and the functions on it. There are no values of this type: a
/// record is [`BYTES`](Self::BYTES) bytes of memory at a multiple of 8.
///
/// | Caller | Calls |
/// |---|---|
/// | owner that writes | [`RecordWriter`](crate::RecordWriter) |
/// | reader of memory that is mapped | [`read_mapped`](Self::read_mapped) |
/// | reader of memory that is not | one READ of [`BYTES`](Self::BYTES), then [`decode`](Self::decode); if it is [`Torn`], again |
/// | the one writer, if its memory is not mapped | [`encode`](Self::encode), then one WRITE |
///
/// A caller that gets version n from mapped memory sees all that the writer did before it wrote
/// version n, and never gets an older version later.
///
/// ```
/// use gossamer_segment::{Record, RecordWriter};
/// use primitive::SharedBytes;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(FromBytes, IntoBytes, Immutable, Debug, PartialEq)]
/// #[repr(C)]
/// struct Quote {
///     bid: u64,
///     ask: u64,
///     volume: u64,
/// }
///
/// let memory = SharedBytes::heap(2 * Record::<Quote>::BYTES);
/// let at = Record::<Quote>::BYTES; // the second of two
/// assert_eq!(Record::<Quote>::read_mapped(&memory, at)?, None);
/// let mut writer = RecordWriter::<Quote>::new(memory.clone(), at);
/// writer.write(&Quote { bid: 99, ask: 101, volume: 7 });
/// let quote = Quote { bid: 99, ask: 101, volume: 7 };
/// assert_eq!(Record::<Quote>::read_mapped(&memory, at)?, Some((1, quote)));
/// # Ok::<(), gossamer_segment::Torn>(())
/// ```
pub struct Record<T>(PhantomData<fn() -> T>);

impl<T> Record<T> {
    /// Bytes of a record, a multiple of 8: in an array of records, the distance between two. Those
    /// of a `T` of up to 48 bytes fit in a cache line; an array of them is read and written fastest
    /// if it begins at one.
    pub const BYTES: usize = Self::CHECKSUM + WORD;

    /// Words of a record.
    const WORDS: usize = Self::BYTES / WORD;

    /// Where the checksum is.
    const CHECKSUM: usize = WORD + size_of::<T>().next_multiple_of(WORD);
}

impl<T: FromBytes + IntoBytes + Immutable> Record<T> {
    /// The version and value of a record at byte `at` of a copy, such as one READ of
    /// [`BYTES`](Self::BYTES) brings; `None` if it was never written. Call it once the READ has
    /// completed. If the memory is still written meanwhile, use [`read_mapped`](Self::read_mapped).
    ///
    /// # Errors
    /// [`Torn`] if the copy was made while the record was written: make another.
    ///
    /// # Panics
    /// If the record is not inside `copy`, or `at` is no multiple of 8.
    #[inline]
    pub fn decode(copy: &SharedBytes, at: usize) -> Result<Option<(u64, T)>, Torn> {
        Attempt::at(copy, at).end().ok_or(Torn { attempts: 1 })
    }

    /// As [`decode`](Self::decode), of a record that is all of `bytes`.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    ///
    /// # Panics
    /// If `bytes` are not [`BYTES`](Self::BYTES) bytes.
    #[doc(hidden)]
    #[inline]
    pub fn decode_bytes(bytes: &[u8]) -> Result<Option<(u64, T)>, Torn> {
        let (len, expected) = (bytes.len(), Self::BYTES);
        assert!(len == expected, "a record has {expected} bytes, got {len}");
        let mut attempt = Attempt::<T>::new();
        let word = |at: usize| <[u8; WORD]>::try_from(&bytes[at..at + WORD]).unwrap_or_default();
        attempt.version = u64::from_ne_bytes(word(0));
        attempt.value.as_mut_bytes().copy_from_slice(&bytes[WORD..WORD + size_of::<T>()]);
        attempt.checksum = u64::from_ne_bytes(word(Self::CHECKSUM));
        attempt.end().ok_or(Torn { attempts: 1 })
    }

    /// All of a record that holds `value`, for one WRITE by the one writer.
    ///
    /// ```
    /// use gossamer_segment::Record;
    /// let bytes = Record::<[u32; 3]>::encode(&[1, 2, 3], 7);
    /// assert_eq!(bytes.len(), Record::<[u32; 3]>::BYTES);
    /// assert_eq!(Record::decode(&bytes, 0), Ok(Some((7, [1_u32, 2, 3]))));
    /// ```
    ///
    /// # Panics
    /// If `version` is zero, which says that a record was never written.
    #[must_use]
    pub fn encode(value: &T, version: u64) -> SharedBytes {
        let memory = SharedBytes::heap(Self::BYTES);
        Self::encode_into(&memory, 0, value, version);
        memory
    }

    /// As [`encode`](Self::encode), at byte `at` of `memory`. Memory that readers map may be
    /// written like this: a reader that gets this version sees what the caller did before.
    ///
    /// # Panics
    /// As [`encode`](Self::encode); if the record is not inside `memory`, or `at` is no multiple of
    /// 8.
    #[doc(hidden)]
    #[inline]
    pub fn encode_into(memory: &SharedBytes, at: usize, value: &T, version: u64) {
        let start = place(memory, at, Self::BYTES);
        let (words, record) = (memory.words(), Encoder::new(value, version));
        for index in 0..Self::WORDS - 1 {
            words.store(start + index, record.word(index), Ordering::Relaxed);
        }
        words.store(start + Self::WORDS - 1, record.word(Self::WORDS - 1), Ordering::Release);
    }

    /// As [`encode_into`](Self::encode_into), to a region that is mapped.
    ///
    /// # Errors
    /// As [`Window::store_words`], before anything is written.
    ///
    /// # Panics
    /// If `version` is zero.
    #[doc(hidden)]
    #[inline]
    pub fn write_window(
        window: &Window,
        at: usize,
        value: &T,
        version: u64,
    ) -> Result<(), OpError> {
        let record = Encoder::new(value, version);
        window.store_words(at, Self::WORDS, |index| record.word(index))
    }
}

/// The first word of a record of `bytes` bytes at byte `at` of `memory`.
#[inline(always)]
pub(super) fn place(memory: &SharedBytes, at: usize, bytes: usize) -> usize {
    let len = memory.len();
    assert!(
        at.is_multiple_of(WORD) && bytes <= len && at <= len - bytes,
        "invalid place {at} of a record of {bytes} bytes in a memory of {len} bytes: \
         expected a multiple of 8 that leaves room for it"
    );
    at / WORD
}

/// Word `index` of a payload; the bytes behind its end are zero.
#[inline(always)]
fn payload_word(bytes: &[u8], index: usize) -> u64 {
    let (words, rest) = bytes.as_chunks::<WORD>();
    u64::from_ne_bytes(words.get(index).copied().unwrap_or_else(|| {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        last
    }))
}

/// The checksum of a record: of the version and its payload.
#[inline(always)]
fn checksum<T: IntoBytes + Immutable>(version: u64, value: &T) -> u64 {
    let bytes = value.as_bytes();
    let word = |index| payload_word(bytes, index);
    let words = Record::<T>::WORDS - 2;
    let payload = checksum_of(words, word);
    checksum_of(2, |index| if index == 0 { version } else { payload })
}

/// The words of a record that is written.
struct Encoder<'a, T> {
    version: u64,
    value: &'a T,
    checksum: u64,
}

impl<'a, T: IntoBytes + Immutable> Encoder<'a, T> {
    #[inline(always)]
    fn new(value: &'a T, version: u64) -> Self {
        assert!(version != 0, "{NEVER_WRITTEN}");
        Self { version, value, checksum: checksum(version, value) }
    }

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        match index {
            0 => self.version,
            _ if index == Record::<T>::WORDS - 1 => self.checksum,
            _ => payload_word(self.value.as_bytes(), index - 1),
        }
    }
}

/// The words of a record that is read, each of which is put once.
pub(super) struct Attempt<T> {
    version: u64,
    value: T,
    checksum: u64,
}

impl<T: FromBytes + IntoBytes + Immutable> Attempt<T> {
    #[inline(always)]
    fn new() -> Self {
        Self { version: 0, value: T::new_zeroed(), checksum: 0 }
    }

    /// All words of the record at byte `at` of `memory`.
    #[inline(always)]
    pub(super) fn at(memory: &SharedBytes, at: usize) -> Self {
        let start = place(memory, at, Record::<T>::BYTES);
        let (words, mut attempt) = (memory.words(), Self::new());
        for index in 0..Record::<T>::WORDS {
            attempt.put(index, words.load(start + index, Ordering::Relaxed));
        }
        attempt
    }

    /// As [`at`](Self::at), of a region that is mapped.
    #[inline(always)]
    pub(super) fn through(window: &Window, at: usize) -> Result<Self, OpError> {
        let mut attempt = Self::new();
        if size_of::<T>() >= COPIED * WORD {
            window.load_words(at, 1, |_, version| attempt.version = version)?;
            window.read_into(at + WORD, attempt.value.as_mut_bytes())?;
            let checksum = at + Record::<T>::CHECKSUM;
            window.load_words(checksum, 1, |_, word| attempt.checksum = word)?;
        } else {
            window.load_words(at, Record::<T>::WORDS, |index, word| attempt.put(index, word))?;
        }
        Ok(attempt)
    }

    /// Puts word `index` of the record.
    #[inline(always)]
    fn put(&mut self, index: usize, word: u64) {
        let bytes = word.to_ne_bytes();
        match index {
            0 => self.version = word,
            _ if index == Record::<T>::WORDS - 1 => self.checksum = word,
            _ => {
                let (words, rest) = self.value.as_mut_bytes().as_chunks_mut::<WORD>();
                match words.get_mut(index - 1) {
                    Some(word) => *word = bytes,
                    None => rest.copy_from_slice(&bytes[..rest.len()]),
                }
            }
        }
    }

    /// What was read; `None` if it is torn.
    #[inline(always)]
    pub(super) fn end(self) -> Option<Option<(u64, T)>> {
        let Self { version, value, checksum: expected } = self;
        if version == 0 {
            cold_path();
            let is_fresh = expected == 0 && value.as_bytes().iter().all(|byte| *byte == 0);
            return is_fresh.then_some(None);
        }
        let is_intact = expected == checksum(version, &value);
        // Pairs with the release store of the checksum, which was loaded from mapped memory.
        fence(Ordering::Acquire);
        is_intact.then_some(Some((version, value)))
    }
}

//! Memory that holds code: chunks of [`CHUNK`] bytes, each mapped twice, and who has which part.
//!
//! ```text
//!   one memfd                       run view                      write view
//!   |  0  text half   1 MiB |       readable, executable          readable, writable
//!   |  1  data half   1 MiB |       readable                      readable, writable
//! ```
//!
//! No address is ever both writable and executable, and nothing changes its protection: linking a jam
//! is a copy. A jam's text lies at some offset `t` of the text half and its read-only data at the same
//! offset of the data half, [`DATA_DISTANCE`] after it, which is how its code finds the data.
//!
//! Places are given out in units of [`UNIT`] bytes, so that jams share no cache line. A place that was
//! used before is given out again only after [`Reuse`](crate::reuse::Reuse) has said that nothing runs in it; this file
//! only does the arithmetic.

mod chunk;
pub(crate) mod icache;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::arena::chunk::Chunk;
use crate::reuse::barrier;

/// How far a jam's data lies after its text.
pub(crate) const DATA_DISTANCE: usize = 1 << 20;
/// Bytes of a chunk.
pub(crate) const CHUNK: usize = 2 * DATA_DISTANCE;
/// The unit of allocation: a cache line.
pub(crate) const UNIT: usize = 64;

/// All chunks of a process, and what is free in them.
pub(crate) struct Arena {
    chunks: Vec<Part>,
    max_chunks: usize,
}

/// One chunk's free places.
struct Part {
    chunk: Arc<Chunk>,
    /// Places that have held code: offset to length. Neighbours are merged.
    free: BTreeMap<usize, usize>,
    /// What lies after this has never held anything.
    high: usize,
}

/// A place for a jam, which nothing runs in yet: its bytes can be written.
pub(crate) struct Draft {
    place: Place,
    /// Whether it has held code before.
    is_used: bool,
}

/// A place that holds a jam's code. It goes back to [`Arena::free`]; where it is dropped, its memory
/// is not used again.
pub(crate) struct Place {
    chunk: Arc<Chunk>,
    at: usize,
    /// In units, so a little more than was asked for.
    bytes: usize,
}

impl Arena {
    /// An arena of at most `max_chunks` chunks, of which none exists yet.
    pub(crate) fn new(max_chunks: usize) -> Self {
        Self { chunks: Vec::new(), max_chunks }
    }

    /// Takes a place for `text` and `data` bytes, aligned to `align`, a power of two of at most 4096;
    /// `None` if the arena is full.
    ///
    /// # Errors
    /// The system has no memory for another chunk.
    pub(crate) fn take(
        &mut self,
        text: usize,
        data: usize,
        align: usize,
    ) -> io::Result<Option<Draft>> {
        let bytes = text.max(data).max(1).next_multiple_of(UNIT);
        let align = align.max(UNIT);
        if bytes > DATA_DISTANCE {
            return Ok(None);
        }
        if let Some(draft) = self.chunks.iter_mut().find_map(|part| part.take(bytes, align)) {
            return Ok(Some(draft));
        }
        if self.chunks.len() == self.max_chunks {
            return Ok(None);
        }
        let chunk = Arc::new(Chunk::new()?);
        self.chunks.push(Part { chunk, free: BTreeMap::new(), high: 0 });
        Ok(self.chunks.last_mut().and_then(|part| part.take(bytes, align)))
    }

    /// Takes back a place in which nothing runs and which nothing can find any more.
    pub(crate) fn free(&mut self, place: &Place) {
        let owner = self.chunks.iter_mut().find(|part| Arc::ptr_eq(&part.chunk, &place.chunk));
        if let Some(part) = owner {
            part.chunk.close(place.at, place.bytes);
            part.free(place.at, place.bytes);
        }
    }

    /// Bytes of all places that are in use, in both halves.
    #[cfg(test)]
    fn used(&self) -> usize {
        let used = |part: &Part| part.high - part.free.values().sum::<usize>();
        self.chunks.iter().map(used).sum::<usize>() * 2
    }
}

impl Part {
    /// First fit: among what was used before, then after it.
    fn take(&mut self, bytes: usize, align: usize) -> Option<Draft> {
        let fits = |(&at, &len): (&usize, &usize)| {
            let start = at.next_multiple_of(align);
            (start + bytes <= at + len).then_some((at, len, start))
        };
        let found = self.free.iter().find_map(fits);
        let (at, is_used) = if let Some((at, len, start)) = found {
            self.free.remove(&at);
            self.put(at, start - at);
            self.put(start + bytes, at + len - start - bytes);
            (start, true)
        } else {
            let start = self.high.next_multiple_of(align);
            if start + bytes > DATA_DISTANCE {
                return None;
            }
            // What alignment leaves out is free, and counts as used before.
            if start > self.high {
                self.free(self.high, start - self.high);
            }
            self.high = start + bytes;
            (start, false)
        };
        self.chunk.open(at, bytes);
        Some(Draft { place: Place { chunk: self.chunk.clone(), at, bytes }, is_used })
    }

    fn put(&mut self, at: usize, len: usize) {
        if len > 0 {
            self.free.insert(at, len);
        }
    }

    fn free(&mut self, mut at: usize, mut len: usize) {
        if let Some((&before, &bytes)) = self.free.range(..at).next_back()
            && before + bytes == at
        {
            self.free.remove(&before);
            (at, len) = (before, len + bytes);
        }
        if let Some(behind) = self.free.remove(&(at + len)) {
            len += behind;
        }
        self.free.insert(at, len);
    }
}

impl Draft {
    /// Where the text will run; the data is [`DATA_DISTANCE`] after.
    pub(crate) fn address(&self) -> usize {
        self.place.address()
    }

    /// Writes the text, from the beginning of the place, and the data.
    ///
    /// # Panics
    /// If either is longer than the place.
    pub(crate) fn write(&mut self, text: &[u8], data: &[u8]) {
        let Place { chunk, at, bytes } = &self.place;
        assert!(text.len() <= *bytes && data.len() <= *bytes, "a jam longer than its place");
        chunk.write(*at, text);
        chunk.write(DATA_DISTANCE + at, data);
    }

    /// Writes one word of the data, at this byte of it.
    ///
    /// # Panics
    /// If it is not inside the place.
    pub(crate) fn write_word(&mut self, at: usize, word: u64) {
        let place = &self.place;
        assert!(
            at.checked_add(8).is_some_and(|end| end <= place.bytes),
            "a word outside its place"
        );
        place.chunk.write(DATA_DISTANCE + place.at + at, &word.to_le_bytes());
    }

    /// The place, whose text every thread of the process may run from now on.
    pub(crate) fn finish(self) -> Place {
        let Draft { place, is_used } = self;
        icache::publish(place.address(), place.bytes);
        if is_used {
            barrier::sync_core();
        }
        place
    }
}

impl Place {
    /// Where its text runs.
    pub(crate) fn address(&self) -> usize {
        self.chunk.run_address() + self.at
    }

    /// Bytes of memory that it takes, in both halves.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes * 2
    }
}

#[cfg(test)]
mod tests;

//! [`Spill`]: where the bytes of an encoded value go that is longer than its place on the stack. Arguments
//! go to a [`Room`], memory that their thread keeps, so that those which fit a request allocate nothing.

use std::cell::Cell;

use primitive::limits::{INLINE_BYTES, MESSAGE_BYTES};

/// Where an encoded value goes that is longer than its place on the stack.
pub(crate) trait Spill {
    /// Whether a value that goes there may hold trusts.
    const TAKES_TRUSTS: bool;

    /// Whether nothing has been written there.
    fn is_unused(&self) -> bool;

    /// Appends bytes, if that is quick; false otherwise.
    fn extend(&mut self, bytes: &[u8]) -> bool;

    /// Appends `bytes`, in front of which belong the first `start` bytes of `place` if nothing has been
    /// written yet. Bytes beyond what it has room for are not kept.
    fn spill(&mut self, place: &[u8], start: usize, bytes: &[u8]);

    /// Overwrites the bytes at `at`, which have been written.
    fn overwrite(&mut self, at: usize, bytes: &[u8]);
}

impl Spill for Vec<u8> {
    const TAKES_TRUSTS: bool = true;

    #[inline(always)]
    fn is_unused(&self) -> bool {
        self.is_empty()
    }

    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        let has_room = bytes.len() <= self.capacity() - self.len();
        if has_room {
            self.extend_from_slice(bytes);
        }
        has_room
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, place: &[u8], start: usize, bytes: &[u8]) {
        // Bytes beyond the largest message are refused in the end.
        if bytes.is_empty() || start + bytes.len() > MESSAGE_BYTES {
            return;
        }
        if self.is_empty() {
            self.reserve((start + bytes.len()).next_power_of_two().max(256));
            self.extend_from_slice(&place[..start]);
        }
        self.extend_from_slice(bytes);
    }

    #[inline(always)]
    fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// The most memory that a thread keeps.
const KEPT_BYTES: usize = 2 * INLINE_BYTES;

thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A vector in the memory that its thread keeps. It takes that when something is written, and gives it
/// back when it is dropped; another one meanwhile allocates.
#[derive(Default)]
pub(crate) struct Room(Vec<u8>);

impl Room {
    /// What has been written, which leaves this with its memory.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl AsRef<[u8]> for Room {
    #[inline(always)]
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Spill for Room {
    const TAKES_TRUSTS: bool = true;

    #[inline(always)]
    fn is_unused(&self) -> bool {
        self.0.is_unused()
    }

    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        Spill::extend(&mut self.0, bytes)
    }

    #[inline(never)]
    fn spill(&mut self, place: &[u8], start: usize, bytes: &[u8]) {
        if self.0.capacity() == 0 {
            self.0 = KEPT.try_with(Cell::take).unwrap_or_default();
        }
        self.0.spill(place, start, bytes);
    }

    #[inline(always)]
    fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.0.overwrite(at, bytes);
    }
}

impl Drop for Room {
    #[inline(always)]
    fn drop(&mut self) {
        let capacity = self.0.capacity();
        if capacity > 0 && capacity <= KEPT_BYTES {
            let mut kept = std::mem::take(&mut self.0);
            kept.clear();
            // The thread ends: so does what it keeps.
            let _ = KEPT.try_with(|place| place.set(kept));
        }
    }
}

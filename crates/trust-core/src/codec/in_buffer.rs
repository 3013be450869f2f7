//! [`InBuffer`]: encoding straight into the buffer of a pair of threads.

use primitive::SharedBytes;

use crate::codec::spill::Spill;

/// The room for one encoded value in a buffer. A peer may write there meanwhile, so nothing is read
/// from it.
pub(crate) struct InBuffer<'a> {
    buffer: &'a SharedBytes,
    /// Where the room begins.
    at: usize,
    /// Bytes of the room.
    room: usize,
    /// Bytes of the value, also those that have found no room.
    len: usize,
}

impl<'a> InBuffer<'a> {
    /// The `room` bytes from byte `at` of `buffer` on.
    #[inline(always)]
    pub(crate) fn new(buffer: &'a SharedBytes, at: usize, room: usize) -> Self {
        InBuffer { buffer, at, room, len: 0 }
    }

    /// Whether all of the value has found room.
    #[inline(always)]
    pub(crate) fn fits(&self) -> bool {
        self.len <= self.room
    }

    #[inline(always)]
    fn append(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end <= self.room {
            self.buffer.write_from(self.at + self.len, bytes);
        }
        self.len = end;
    }
}

impl Spill for InBuffer<'_> {
    const TAKES_TRUSTS: bool = false;

    #[inline(always)]
    fn is_unused(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        self.append(bytes);
        true
    }

    #[inline(always)]
    fn spill(&mut self, place: &[u8], start: usize, bytes: &[u8]) {
        self.append(&place[..start]);
        self.append(bytes);
    }

    #[inline(always)]
    fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        if self.fits() {
            self.buffer.write_from(self.at + at, bytes);
        }
    }
}

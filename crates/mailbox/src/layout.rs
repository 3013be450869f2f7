//! [`Geometry`]: where everything is in the segment of a mailbox, and in that of a sender's flags.
//!
//! ```text
//!   mailbox   0          64           128                     128 + 64 * senders
//!             | geometry | is asleep  | claim 0 | claim 1 | .. | bank set 0 | bank set 1 | ..
//!   bank set  | bank 0: frame 0, frame 1, .. | bank 1: .. | ..          one for each claim
//!   flags     0          64
//!             | is waiting, identity | flag of bank 0 | flag of bank 1 | .. | released
//! ```
//!
//! All numbers are words of this machine's byte order, as everywhere in the rack. What a sender reads
//! is a claim of the receiver: [`Geometry::decode`] checks it against the length of the segment.

use thiserror::Error;
use transport_api::integrity::checksum_of;

pub(crate) const WORD: usize = size_of::<u64>();

/// Words of a frame's header.
pub(crate) const HEADER_WORDS: usize = 6;
pub(crate) const HEADER_BYTES: usize = HEADER_WORDS * WORD;

/// Bytes of a frame's checksum.
const CHECKSUM_BYTES: usize = WORD;

/// Bytes of a cache line: what two sides write is never in the same one.
pub(crate) const LINE: usize = 64;

/// The most bytes that a frame may have for arguments, payload and attachment.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Bytes of a frame besides those: the header, and a checksum where memory is not mapped.
pub const FRAME_OVERHEAD: usize = HEADER_BYTES + CHECKSUM_BYTES;

/// Where the words of the geometry are, how many they are, and what the first of them is.
const GEOMETRY_WORDS: usize = 5;
const MAGIC: u64 = u64::from_be_bytes(*b"GSMMAIL2");

/// Bytes of the encoded geometry.
pub(crate) const GEOMETRY_BYTES: usize = GEOMETRY_WORDS * WORD;

/// The word that is not zero while the receiver sleeps.
pub(crate) const ASLEEP: usize = LINE;

/// Where the claims begin.
const CLAIMS: usize = 2 * LINE;

/// Bytes of a claim.
pub(crate) const CLAIM_BYTES: usize = LINE;

/// The word of the flags that is not zero while the sender waits for one of them.
pub(crate) const WAITING: usize = 0;

/// The word of the flags that says whose they are.
pub(crate) const IDENTITY: usize = WORD;

/// Where the flags begin.
const FLAGS: usize = LINE;

/// The most banks, frames of a bank, and senders.
const MAX: (u32, u32, u32) = (64, 4096, 1024);

/// Whether all frames of a mailbox are of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Where memory is not mapped, every frame travels as a whole, whatever its contents: for mailboxes
    /// whose frames are all nearly full. Where it is mapped, and over streams, as
    /// [`Variable`](Self::Variable).
    Fixed,
    /// Only what a frame contains travels.
    Variable,
}

/// Why a mailbox cannot be as it was asked for, or as a peer says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid number of {what} {value}: must be from 1 to {max}")]
pub struct InvalidGeometry {
    /// What is out of range.
    pub what: &'static str,
    /// Its value.
    pub value: u64,
    /// The largest that is allowed.
    pub max: u64,
}

/// The dimensions of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Banks of each sender.
    pub banks: u32,
    /// Frames of each bank.
    pub frames: u32,
    /// Bytes of a frame for arguments, payload and attachment; a multiple of eight.
    pub body: u32,
    /// Senders that can use the mailbox at the same time.
    pub senders: u32,
    /// Whether all frames are of one size.
    pub kind: FrameKind,
    /// Whether the receiver sleeps when there is nothing, so that senders have to wake it.
    pub may_sleep: bool,
}

impl Geometry {
    /// These dimensions, with `body` rounded up.
    ///
    /// # Errors
    /// [`InvalidGeometry`], for the first that is out of range.
    pub fn checked(mut self) -> Result<Geometry, InvalidGeometry> {
        let Geometry { banks, frames, body, senders, .. } = self;
        let ranges = [
            ("banks", banks, MAX.0),
            ("frames of a bank", frames, MAX.1),
            ("bytes of a frame", body, MAX_FRAME_BYTES as u32),
            ("senders", senders, MAX.2),
        ];
        for (what, value, max) in ranges {
            if !(1..=max).contains(&value) {
                return Err(InvalidGeometry { what, value: value.into(), max: max.into() });
            }
        }
        self.body = body.next_multiple_of(WORD as u32);
        Ok(self)
    }

    /// Bytes from one frame to the next.
    pub fn stride(&self) -> usize {
        (self.body as usize + FRAME_OVERHEAD).next_multiple_of(LINE)
    }

    /// Frames of a bank set.
    pub fn set_frames(&self) -> u64 {
        u64::from(self.banks) * u64::from(self.frames)
    }

    /// Bytes of a bank set.
    pub fn set_bytes(&self) -> usize {
        self.set_frames() as usize * self.stride()
    }

    /// Bytes of the segment.
    pub fn bytes(&self) -> usize {
        self.set_at(self.senders)
    }

    /// Where claim `number` is.
    pub(crate) fn claim_at(&self, number: u32) -> usize {
        CLAIMS + number as usize * CLAIM_BYTES
    }

    /// Where bank set `number` is.
    pub fn set_at(&self, number: u32) -> usize {
        self.claim_at(self.senders) + number as usize * self.set_bytes()
    }

    /// Bytes of a sender's flags.
    pub fn flags_bytes(&self) -> usize {
        self.released_at() + WORD
    }

    /// Where a sender finds that its bank set was released.
    pub(crate) fn released_at(&self) -> usize {
        flag_at(self.banks)
    }

    /// As words of the segment.
    pub(crate) fn encode(&self) -> [u8; GEOMETRY_BYTES] {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let kind = u32::from(self.kind == FrameKind::Variable) | u32::from(self.may_sleep) << 1;
        let mut words = [MAGIC, two(self.banks, self.frames), two(self.body, self.senders), 0, 0];
        words[3] = kind.into();
        words[4] = checksum_of(GEOMETRY_WORDS - 1, |at| words[at]);
        let mut bytes = [0; GEOMETRY_BYTES];
        for (word, bytes) in words.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.to_ne_bytes();
        }
        bytes
    }

    /// From words of a segment of `len` bytes; `None` if that has no mailbox, or not yet.
    pub(crate) fn decode(bytes: &[u8; GEOMETRY_BYTES], len: usize) -> Option<Geometry> {
        let mut words = [0; GEOMETRY_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let is_intact = words[4] == checksum_of(GEOMETRY_WORDS - 1, |at| words[at]);
        if words[0] != MAGIC || !is_intact || words[3] > 3 {
            return None;
        }
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((banks, frames), (body, senders)) = (halves(words[1]), halves(words[2]));
        let kind = if words[3] & 1 == 0 { FrameKind::Fixed } else { FrameKind::Variable };
        let may_sleep = words[3] & 2 != 0;
        let claimed = Geometry { banks, frames, body, senders, kind, may_sleep };
        let checked = claimed.checked().ok()?;
        (checked == claimed && checked.bytes() <= len).then_some(checked)
    }
}

/// The place of the next frame of a bank set, without a division for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The sequence number of the next frame.
    pub(crate) next: u64,
    /// Its first byte in the segment.
    pub(crate) at: usize,
    /// Frames of its bank from it on.
    pub(crate) left: u32,
    /// Bytes from one frame to the next.
    stride: u32,
    /// Its bank, and how often that was filled before.
    pub(crate) bank: u32,
    pub(crate) filled: u64,
    /// The first byte of the first frame of the set.
    base: usize,
    frames: u32,
    banks: u32,
}

impl Cursor {
    /// The first frame of bank set `set`.
    pub(crate) fn new(geometry: &Geometry, set: u32) -> Cursor {
        let base = geometry.set_at(set);
        Cursor {
            next: 0,
            at: base,
            left: geometry.frames,
            // A frame is little longer than 1 MiB.
            stride: geometry.stride() as u32,
            bank: 0,
            filled: 0,
            base,
            frames: geometry.frames,
            banks: geometry.banks,
        }
    }

    /// Bytes from one frame to the next.
    #[inline(always)]
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    /// Goes on to the frame behind the next one; true if that begins a bank.
    #[inline(always)]
    pub(crate) fn advance(&mut self) -> bool {
        self.next += 1;
        self.at += self.stride();
        self.left -= 1;
        let is_end = self.left == 0;
        if is_end {
            self.left = self.frames;
            self.bank += 1;
            if self.bank == self.banks {
                (self.bank, self.at) = (0, self.base);
                self.filled += 1;
            }
        }
        is_end
    }
}

/// Where the flag of a bank is in a sender's flags.
#[inline]
pub fn flag_at(bank: u32) -> usize {
    FLAGS + bank as usize * WORD
}

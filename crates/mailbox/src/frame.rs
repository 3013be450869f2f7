//! The frame's format: header, three runs of bytes, and in one mode a checksum behind them.
//!
//! ```text
//!   word 0   tag: epoch of the sender, sequence number            arguments, at byte 48
//!   word 1   kind, length of the arguments                        payload, at the next multiple of 8,
//!   word 2   length of the payload, length of the attachment        or, mapped, the next line
//!   word 3-4 id                                                   attachment, at the next multiple of 8
//!   word 5   reply token                                          a checksum, in one mode
//! ```
//!
//! | Mode | Written | Has come when |
//! |---|---|---|
//! | [`Mode::Mapped`] | the body but for what is in the line of the header; that line, its last word first, so that the tag is the last word of all; no closing word | the tag is the expected one |
//! | [`Mode::Streamed`] | what it contains, the tag last, in one message of a stream | the tag is the expected one |
//! | [`Mode::Checked`] | all of it at once, in no order, with its checksum behind the body or, if frames are fixed, at the end of the place | the tag is the expected one, and the checksum is right |
//!
//! A tag has a place of its own in each frame: no earlier frame's body can have left the next one's tag
//! there. A receiver that waits for a frame in mapped memory looks at one line, and that is written at
//! once: no line goes back and forth while a frame is written. Its payload begins with a line if that takes no
//! more lines, since a copy of whole lines takes them without fetching what they had, and is not held up
//! by a last line that it writes only in part.

use thiserror::Error;

use crate::layout::{Geometry, HEADER_BYTES, HEADER_WORDS, LINE, WORD};

/// How the frames of a sender come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The sender stores into mapped memory, the tag last.
    Mapped = 1,
    /// Each frame is written at once, and its bytes have no order.
    Checked = 2,
    /// Each frame is one message of a stream: a write, and behind it a store of the tag.
    Streamed = 3,
}

impl Mode {
    /// All of them.
    pub(crate) const ALL: [Mode; 3] = [Mode::Mapped, Mode::Checked, Mode::Streamed];
}

/// The header of a frame, which a sender sets for the layer above; a mailbox does not interpret it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of frame.
    pub kind: u32,
    /// The subject of the frame: the id of an element, or a digest.
    pub id: [u8; 16],
    /// A token for the answer, if the sender wants one.
    pub reply: u64,
}

/// The bytes of a frame that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The arguments.
    pub args: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// Further bytes, such as code.
    pub attachment: &'a [u8],
}

/// A frame whose header no sender of this build writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Error)]
#[error(
    "frame {sequence} claims {len} bytes of arguments, payload and attachment: at most {max} fit"
)]
pub struct Malformed {
    /// The number of the frame among those of its sender, from 0.
    pub sequence: u64,
    /// Bytes that its header claims, each run rounded up to a multiple of eight.
    pub len: u64,
    /// Bytes that a frame of the mailbox has for them.
    pub max: u64,
}

/// Bytes of the three runs of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) args: u32,
    pub(crate) payload: u32,
    pub(crate) attachment: u32,
}

#[inline(always)]
fn padded(len: u32) -> u64 {
    // Less work than `next_multiple_of`, and nothing overflows.
    (u64::from(len) + (WORD as u64 - 1)) & !(WORD as u64 - 1)
}

impl Lengths {
    /// Bytes of all three, each rounded up.
    #[inline(always)]
    pub(crate) fn body(self) -> u64 {
        padded(self.args) + padded(self.payload) + padded(self.attachment)
    }

    /// Where the payload and the attachment begin, and where the body ends, in a frame. Only for
    /// lengths whose [`body`](Self::body) fits into a frame.
    #[inline(always)]
    pub(crate) fn places(self, mode: Mode) -> (usize, usize, usize) {
        let behind_args = HEADER_BYTES + padded(self.args) as usize;
        let behind_payload = (padded(self.payload) + padded(self.attachment)) as usize;
        let lines = |start: usize| (start + behind_payload).div_ceil(LINE);
        let line = behind_args.next_multiple_of(LINE);
        let is_aligned = mode == Mode::Mapped && lines(line) == lines(behind_args);
        let payload = if is_aligned { line } else { behind_args };
        let attachment = payload + padded(self.payload) as usize;
        (payload, attachment, attachment + padded(self.attachment) as usize)
    }
}

impl Parts<'_> {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.args.is_empty() && self.payload.is_empty() && self.attachment.is_empty()
    }

    /// The lengths, if the parts fit into a frame of this mailbox.
    ///
    /// # Errors
    /// The bytes that they would take.
    #[inline(always)]
    pub(crate) fn lengths(&self, geometry: &Geometry) -> Result<Lengths, usize> {
        let all = [self.args, self.payload, self.attachment];
        // No slice is so long that rounding its length up overflows; the sum of three may.
        let rounded = |part: &[u8]| (part.len() + (WORD - 1)) & !(WORD - 1);
        let body = all.iter().fold(0, |sum: usize, part| sum.saturating_add(rounded(part)));
        if body > geometry.body as usize {
            return Err(body);
        }
        // A body is at most 1 MiB long.
        let [args, payload, attachment] = all.map(|part| part.len() as u32);
        Ok(Lengths { args, payload, attachment })
    }
}

/// The tag of frame `sequence` of the sender with this epoch. Never zero, as epochs are not.
#[inline]
pub(crate) fn tag(epoch: u32, sequence: u64) -> u64 {
    u64::from(epoch) << 32 | u64::from(sequence as u32)
}

/// The words of a header.
#[inline(always)]
pub(crate) fn encode(tag: u64, header: &FrameHeader, lengths: Lengths) -> [u64; HEADER_WORDS] {
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let [low, high] = header.id.as_chunks::<WORD>().0 else { unreachable!("an id has two words") };
    [
        tag,
        two(header.kind, lengths.args),
        two(lengths.payload, lengths.attachment),
        u64::from_ne_bytes(*low),
        u64::from_ne_bytes(*high),
        header.reply,
    ]
}

/// What a header says, unless it claims more than a frame has.
///
/// # Errors
/// [`Malformed`].
#[inline(always)]
pub(crate) fn decode(
    words: &[u64; HEADER_WORDS],
    sequence: u64,
    geometry: &Geometry,
) -> Result<(FrameHeader, Lengths), Malformed> {
    let halves = |word: u64| (word as u32, (word >> 32) as u32);
    let ((kind, args), (payload, attachment)) = (halves(words[1]), halves(words[2]));
    let lengths = Lengths { args, payload, attachment };
    if lengths.body() > geometry.body.into() {
        return Err(Malformed { sequence, len: lengths.body(), max: geometry.body.into() });
    }
    let mut id = [0; 16];
    id[..WORD].copy_from_slice(&words[3].to_ne_bytes());
    id[WORD..].copy_from_slice(&words[4].to_ne_bytes());
    Ok((FrameHeader { kind, id, reply: words[5] }, lengths))
}

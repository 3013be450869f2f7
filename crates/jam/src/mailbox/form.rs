//! What a frame of a jam says, beside its arguments and payload, and what its sender keeps for the
//! receiver: pure.
//!
//! ```text
//!   frame     id: digest of the jam    kind: | place of the code << 4 | form |    reply: token
//!   segment   0         32       40      48                64
//!   of a      | report  | checksum | -   | token  | entry: length, digest, - | code | entry ..
//!   sender                                         ^ each at a multiple of 64
//! ```
//!
//! The token names the segment of the sender: a number, and a random half, so that a number which is
//! used again is not taken for its former owner. A place is counted in units of 64 bytes.

use std::fmt;

use ::mailbox::FrameHeader;
use jam_format::{Digest, MAX_PROVEN_BYTES};
use transport_api::integrity::checksum_of;

use crate::mailbox::failure::FailureKind;

pub(super) const WORD: usize = 8;

/// What places are multiples of.
pub(super) const UNIT: usize = 64;

/// Where a sender's segment has its token.
pub(super) const TOKEN_AT: usize = 48;

/// Bytes of an entry before its code.
pub(super) const ENTRY_BYTES: usize = 32;

/// The longest segment of a sender: places have 28 bits.
pub(super) const MAX_SEGMENT: usize = UNIT << 28;

const BY_DIGEST: u32 = 1;
const LOCAL: u32 = 2;
const FORM: u32 = 0xf;

/// How the receiver finds the code of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// The Local Function of the receiver's program is meant.
    pub(super) is_local: bool,
    /// Where the sender's segment has the code, in units; 0 if it has not.
    pub(super) place: u32,
}

impl Form {
    /// As the kind of a frame. A place has 28 bits.
    pub(super) fn encode(self) -> u32 {
        self.place << FORM.count_ones() | if self.is_local { LOCAL } else { BY_DIGEST }
    }

    /// Of the kind of a frame; `None` for a kind that no sender of this build writes.
    #[inline]
    pub(super) fn decode(kind: u32) -> Option<Self> {
        let is_local = match kind & FORM {
            BY_DIGEST => false,
            LOCAL => true,
            _ => return None,
        };
        Some(Form { is_local, place: kind >> FORM.count_ones() })
    }

    pub(super) fn header(self, digest: &Digest, token: u64) -> FrameHeader {
        FrameHeader { kind: self.encode(), id: *digest.as_bytes(), reply: token }
    }
}

/// What a receiver reports to a sender.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderReport {
    /// Frames of this sender that the receiver has handled: run or rejected.
    pub handled: u64,
    /// How many of these did not run to their end.
    pub failed: u64,
    /// The last failed frame of this sender, numbered from 0, and the reason.
    pub last_failure: Option<(u64, FailureKind)>,
}

/// Words of a report, without its checksum.
const REPORT_WORDS: usize = 4;
pub(super) const REPORT_BYTES: usize = (REPORT_WORDS + 1) * WORD;

impl SenderReport {
    pub(super) fn encode(&self) -> [u8; REPORT_BYTES] {
        let (number, kind) = self.last_failure.unzip();
        let kind = kind.map_or(0, |kind| kind as u64);
        let words = [self.handled, self.failed, number.unwrap_or(0), kind];
        let mut bytes = [0; REPORT_BYTES];
        let checksum = checksum_of(REPORT_WORDS, |at| words[at]);
        for (word, bytes) in words.iter().chain([&checksum]).zip(bytes.as_chunks_mut().0) {
            *bytes = word.to_ne_bytes();
        }
        bytes
    }

    /// `None` while it is being written, and before the first one.
    pub(super) fn decode(bytes: &[u8; REPORT_BYTES]) -> Option<Self> {
        let mut words = [0; REPORT_WORDS + 1];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let [handled, failed, number, kind, checksum] = words;
        if checksum != checksum_of(REPORT_WORDS, |at| words[at]) {
            return None;
        }
        let last_failure = FailureKind::of(kind).map(|kind| (number, kind));
        Some(SenderReport { handled, failed, last_failure })
    }
}

/// With the last failure in words: `last_failure: Some(frame 7: Panicked)`.
impl fmt::Debug for SenderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last_failure = self
            .last_failure
            .map(|(frame, kind)| fmt::from_fn(move |f| write!(f, "frame {frame}: {kind:?}")));
        f.debug_struct("SenderReport")
            .field("handled", &self.handled)
            .field("failed", &self.failed)
            .field("last_failure", &last_failure)
            .finish()
    }
}

/// The head of an entry: which code is after it.
pub(super) fn encode_entry(digest: &Digest, len: usize) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..WORD].copy_from_slice(&(len as u64).to_ne_bytes());
    bytes[WORD..3 * WORD].copy_from_slice(digest.as_bytes());
    bytes
}

/// The length of the code after the head of an entry, if it is that of `digest` and no longer than
/// code can be.
pub(super) fn decode_entry(bytes: &[u8; ENTRY_BYTES], digest: &Digest) -> Option<usize> {
    let (len, rest) = bytes.split_first_chunk::<WORD>()?;
    let len = usize::try_from(u64::from_ne_bytes(*len)).ok()?;
    (rest.starts_with(digest.as_bytes()) && len <= MAX_PROVEN_BYTES).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_one_encoding() {
        for (is_local, place) in [(false, 0), (true, 0), (false, 1), (false, (1 << 28) - 1)] {
            let form = Form { is_local, place };
            assert_eq!(Form::decode(form.encode()), Some(form));
        }
        for kind in [0, 3, 4, 16, u32::MAX] {
            assert_eq!(Form::decode(kind), None, "{kind}");
        }
    }

    #[test]
    fn a_report_that_is_not_whole_is_none() {
        let mut report = SenderReport { handled: 9, failed: 2, last_failure: None };
        assert_eq!(SenderReport::decode(&report.encode()), Some(report));
        report.last_failure = Some((7, FailureKind::Panicked));
        assert_eq!(
            format!("{report:?}"),
            "SenderReport { handled: 9, failed: 2, last_failure: Some(frame 7: Panicked) }"
        );
        let bytes = report.encode();
        assert_eq!(SenderReport::decode(&bytes), Some(report));
        for at in 0..REPORT_BYTES {
            let mut torn = bytes;
            torn[at] ^= 0x10;
            assert_eq!(SenderReport::decode(&torn), None, "byte {at}");
        }
        assert_eq!(SenderReport::decode(&[0; REPORT_BYTES]), None, "before the first one");
    }

    #[test]
    fn an_entry_is_of_its_code_only() {
        let (digest, other) = (Digest::of(b"code"), Digest::of(b"other"));
        assert_eq!(decode_entry(&encode_entry(&digest, 70), &digest), Some(70));
        assert_eq!(decode_entry(&encode_entry(&digest, 70), &other), None);
        assert_eq!(decode_entry(&encode_entry(&digest, MAX_PROVEN_BYTES + 1), &digest), None);
        assert_eq!(decode_entry(&encode_entry(&digest, usize::MAX), &digest), None);
    }
}

//! [`Store`]: what a sender exports to its receiver: the code that it has sent by digest, which the
//! receiver reads when it has none, and a place for the receiver's reports.

use std::hash::{BuildHasher, RandomState};

use ::mailbox::Number;
use gossamer_segment::{Access, HostId, Notify, Rights, Segment, SegmentError, Segments};

use crate::mailbox::form::{
    ENTRY_BYTES, MAX_SEGMENT, REPORT_BYTES, SenderReport, TOKEN_AT, UNIT, encode_entry,
};
use crate::sender::Code;

/// The segment of a sender.
pub(super) struct Store {
    segment: Segment,
    token: u64,
    /// Bytes that are taken.
    used: usize,
    /// Declared after the segment, so dropped after it: the name is free when this is dropped.
    _number: Number,
}

/// The name of the segment with this token.
pub(super) fn name_of(token: u64) -> String {
    format!("jam.sender/{}", token as u32)
}

impl Store {
    /// Exports one for `receiver`, with room for `bytes` bytes of code.
    #[track_caller]
    pub(super) fn export(
        segments: &Segments,
        receiver: HostId,
        bytes: usize,
    ) -> Result<Store, SegmentError> {
        let number = Number::take();
        // Never zero, which is the token of frames without a way back.
        let random = RandomState::new().hash_one(number.value()) | 1 << 63;
        let token = random & !u64::from(u32::MAX) | u64::from(number.value());
        let access = Access::none().with(receiver, Rights::READ | Rights::WRITE);
        let len = UNIT.saturating_add(bytes).min(MAX_SEGMENT).next_multiple_of(UNIT);
        let builder = segments.builder(&name_of(token)).len(len).notify(Notify::Never);
        let segment = builder.access(access).export()?;
        segment.write(TOKEN_AT, &token.to_ne_bytes())?;
        Ok(Store { segment, token, used: UNIT, _number: number })
    }

    /// What frames say for the receiver to find this.
    #[inline]
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Keeps code; its place in units, or `None` if there is no room.
    pub(super) fn keep(&mut self, code: &Code) -> Option<u32> {
        let (at, bytes) = (self.used, code.wire());
        let end = at + ENTRY_BYTES + bytes.len();
        if end > self.segment.len() {
            return None;
        }
        self.segment.write(at, &encode_entry(code.digest(), bytes.len())).ok()?;
        self.segment.write(at + ENTRY_BYTES, bytes).ok()?;
        self.used = end.next_multiple_of(UNIT);
        Some((at / UNIT) as u32)
    }

    /// The last report of the receiver; `None` while it writes one, and before the first.
    pub(super) fn report(&self) -> Option<SenderReport> {
        let mut bytes = [0; REPORT_BYTES];
        self.segment.read(0, &mut bytes).ok()?;
        SenderReport::decode(&bytes)
    }
}

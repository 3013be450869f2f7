//! [`OwnFlags`]: the segment that a sender exports for the flags of its banks.

use gossamer_segment::{Access, HostId, Notifications, Rights, Segment, SegmentError, Segments};

use crate::claim::flags_name;
use crate::layout::Geometry;
use crate::number::Number;

/// The flags of a sender, which its receiver writes to.
pub(crate) struct OwnFlags {
    pub(crate) segment: Segment,
    pub(crate) notifications: Notifications,
    /// Declared after the segment, so dropped after it: the name is free when this is dropped.
    number: Number,
}

impl OwnFlags {
    /// Exports them for `receiver`.
    #[track_caller]
    pub(crate) fn export(
        segments: &Segments,
        receiver: HostId,
        geometry: &Geometry,
    ) -> Result<OwnFlags, SegmentError> {
        let number = Number::take();
        // No other host may pretend that a bank is empty.
        let access = Access::none().with(receiver, Rights::READ | Rights::WRITE);
        let builder =
            segments.builder(&flags_name(number.value().into())).len(geometry.flags_bytes());
        let segment = builder.access(access).export()?;
        Ok(OwnFlags { notifications: segment.notifications(), segment, number })
    }

    /// The number in their name.
    pub(crate) fn number(&self) -> u64 {
        self.number.value().into()
    }
}

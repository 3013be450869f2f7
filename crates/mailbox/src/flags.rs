//! [`OwnFlags`]: the segment that a sender exports for the flags of its banks.

use gossamer_segment::{Access, HostId, Notifications, Rights, Segment, SegmentError, Segments};
use parking_lot::Mutex;

use crate::claim::flags_name;
use crate::layout::Geometry;

/// The flags of a sender, which its receiver writes to.
pub(crate) struct OwnFlags {
    pub(crate) segment: Segment,
    pub(crate) notifications: Notifications,
    /// Behind the segment: the name is free when this is dropped.
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
        let builder = segments.builder(&flags_name(number.0)).len(geometry.flags_bytes());
        let segment = builder.access(access).export()?;
        Ok(OwnFlags { notifications: segment.notifications(), segment, number })
    }

    /// The number in their name.
    pub(crate) fn number(&self) -> u64 {
        self.number.0
    }
}

/// A number that no other sender of this process has. A name takes memory for as long as the process
/// lives, so numbers are used again.
struct Number(u64);

/// The numbers that were given back, and the first that was never used.
static NUMBERS: Mutex<(Vec<u64>, u64)> = Mutex::new((Vec::new(), 0));

impl Number {
    fn take() -> Number {
        let mut numbers = NUMBERS.lock();
        if let Some(number) = numbers.0.pop() {
            return Number(number);
        }
        numbers.1 += 1;
        Number(numbers.1 - 1)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().0.push(self.0);
    }
}

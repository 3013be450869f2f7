//! What a sender prefetches of the next frame in mapped memory: only what the receiver has given back.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::frame::{FrameHeader, Lengths, Mode, Parts};
use crate::layout::{FrameKind, Geometry, flag_at};
use crate::outgoing::{Outgoing, Target};

const EPOCH: u32 = 5;

/// Writes nothing, and keeps which bytes were to be prefetched last.
#[derive(Default)]
struct Prefetched(RefCell<Option<Range<usize>>>);

impl Target for Prefetched {
    type Error = Infallible;
    fn write(&self, _: usize, _: &[u8], _: usize) -> Result<(), Infallible> {
        Ok(())
    }
    fn signal<const N: usize>(&self, _: usize, _: &[u64; N]) -> Result<(), Infallible> {
        Ok(())
    }
    fn prefetch(&self, bytes: Range<usize>) {
        self.0.replace(Some(bytes));
    }
}

#[test]
fn the_body_of_the_next_frame_is_prefetched_if_its_bank_is_empty() {
    let geometry = Geometry {
        banks: 1,
        frames: 3,
        body: 4096,
        senders: 1,
        kind: FrameKind::Variable,
        may_sleep: false,
    };
    let mut outgoing = Outgoing::new(geometry, 0, EPOCH, Mode::Mapped);
    let (flags, to) = (SharedBytes::heap(geometry.flags_bytes()), Prefetched::default());
    let (first, stride) = (geometry.set_at(0), geometry.stride());
    for (number, len) in [64, 16, 4096].into_iter().enumerate() {
        assert!(outgoing.may_write(&flags), "frame {number}");
        let payload = vec![7; len];
        let parts = Parts { args: &[], payload: &payload, attachment: &[] };
        let lengths = parts.lengths(&geometry).expect("parts that fit");
        let Ok(()) = outgoing.write_parts(&to, &FrameHeader::default(), &parts, lengths);
        to.0.take();
        outgoing.prefetch_next(&to, lengths);
        let next = first + (number + 1) * stride;
        let expected = match number {
            // As many lines as this frame has, but for that of the header.
            0 => Some(next + 64..next + 128),
            // All in that line.
            1 => None,
            // The receiver has the bank of the next frame.
            _ => None,
        };
        assert_eq!(to.0.take(), expected, "frame {number}");
    }
    assert!(!outgoing.may_write(&flags));
    flags.store(flag_at(0), 1, Ordering::Release);
    assert!(outgoing.may_write(&flags));
    let lengths = Lengths { payload: 4096, ..Lengths::default() };
    outgoing.prefetch_next(&to, lengths);
    assert_eq!(to.0.take(), Some(first + 64..first + 64 * 9), "eight lines at most");
}

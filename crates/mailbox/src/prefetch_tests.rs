//! What a sender prefetches of the next frame in mapped memory: only what the receiver has given back.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::frame::{FrameHeader, Lengths, Mode, Parts};
use crate::layout::{FrameKind, Geometry, LINE, flag_at};
use crate::outgoing::Outgoing;
use crate::target::Target;

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
    // Each frame's length, and the lines of the next one that are prefetched: as many as this one has, but
    // for that of the header. 16 bytes are all in that line; the receiver has the bank of the last one's next.
    let cases = [(64, Some(LINE..2 * LINE)), (16, None), (4096, None)];
    for (number, (len, expected)) in cases.into_iter().enumerate() {
        assert!(outgoing.may_write(&flags), "frame {number}");
        let payload = vec![7; len];
        let parts = Parts { args: &[], payload: &payload, attachment: &[] };
        let lengths = parts.lengths(&geometry).expect("parts that fit");
        let Ok(()) = outgoing.write_parts(&to, &FrameHeader::default(), &parts, lengths);
        to.0.take();
        outgoing.prefetch_next(&to, lengths);
        let next = first + (number + 1) * stride;
        let expected = expected.map(|lines| next + lines.start..next + lines.end);
        assert_eq!(to.0.take(), expected, "frame {number}");
    }
    assert!(!outgoing.may_write(&flags));
    flags.store(flag_at(0), 1, Ordering::Release);
    assert!(outgoing.may_write(&flags));
    let lengths = Lengths { payload: 4096, ..Lengths::default() };
    outgoing.prefetch_next(&to, lengths);
    assert_eq!(to.0.take(), Some(first + LINE..first + 9 * LINE), "eight lines at most");
}

//! Frames with a checksum: a peer's later writes do not change them, and they carry no bytes of earlier ones.

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::frame::{FrameHeader, Mode, Parts};
use crate::incoming::{Arrival, Incoming};
use crate::layout::{FrameKind, Geometry, HEADER_BYTES, WORD};
use crate::outgoing::Outgoing;
use crate::target::Target;

const EPOCH: u32 = 9;

/// The mailbox's memory, as a device of the sender writes to it.
struct Device<'a>(&'a SharedBytes);

impl Target for Device<'_> {
    type Error = std::convert::Infallible;

    fn write(&self, at: usize, bytes: &[u8], _next: usize) -> Result<(), Self::Error> {
        self.0.write_from(at, bytes);
        Ok(())
    }

    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), Self::Error> {
        let numbered = words.iter().enumerate().rev();
        numbered.for_each(|(number, word)| {
            self.0.store(at + number * WORD, *word, Ordering::Release);
        });
        Ok(())
    }
}

fn geometry(kind: FrameKind) -> Geometry {
    Geometry { banks: 1, frames: 1, body: 256, senders: 1, kind, may_sleep: false }
}

/// A device writes at any time, without a thread of the receiver: also between the check and the copy of the
/// frame's bytes by the layer above.
#[test]
fn a_frame_that_was_checked_does_not_change() {
    for kind in [FrameKind::Fixed, FrameKind::Variable] {
        let geometry = geometry(kind);
        let memory = SharedBytes::heap(geometry.bytes());
        let copy = SharedBytes::heap(geometry.stride());
        let mut outgoing = Outgoing::new(geometry, 0, EPOCH, Mode::Checked);
        let mut incoming = Incoming::new(geometry, 0, EPOCH, Mode::Checked);
        let header = FrameHeader { kind: 5, reply: 6, ..FrameHeader::default() };
        let parts = Parts { args: &[1; 13], payload: &[2; 70], attachment: &[3; 9] };
        assert!(outgoing.may_write(&SharedBytes::heap(geometry.flags_bytes())));
        outgoing.write(&Device(&memory), &header, &parts).unwrap();
        assert_eq!(incoming.poll(&memory, &copy), Arrival::Frame, "{kind:?}");

        memory.write_from(0, &vec![0xff; memory.len()]);
        let arrived = incoming.arrived();
        assert_eq!(arrived.header, header);
        assert!(arrived.is_copied);
        let (payload, attachment, _) = arrived.lengths.places(Mode::Checked);
        for (at, part) in
            [(HEADER_BYTES, parts.args), (payload, parts.payload), (attachment, parts.attachment)]
        {
            let mut bytes = vec![0; part.len()];
            copy.read_into(arrived.at + at, &mut bytes);
            assert_eq!(bytes, part, "{kind:?}, byte {at}");
        }
    }
}

/// A frame is put together where an earlier one was: nothing of that is sent along.
#[test]
fn a_frame_has_nothing_of_the_one_before_it() {
    for kind in [FrameKind::Fixed, FrameKind::Variable] {
        let geometry = Geometry { frames: 2, ..geometry(kind) };
        let memory = SharedBytes::heap(geometry.bytes());
        let mut outgoing = Outgoing::new(geometry, 0, EPOCH, Mode::Checked);
        assert!(outgoing.may_write(&SharedBytes::heap(geometry.flags_bytes())));
        let long = Parts { args: &[0xee; 80], payload: &[0xee; 80], attachment: &[0xee; 80] };
        let short = Parts { args: &[1; 3], payload: &[2; 9], attachment: &[3; 1] };
        for parts in [long, short] {
            outgoing.write(&Device(&memory), &FrameHeader::default(), &parts).unwrap();
        }
        let incoming = {
            let mut incoming = Incoming::new(geometry, 0, EPOCH, Mode::Checked);
            let copy = SharedBytes::heap(geometry.stride());
            assert_eq!(incoming.poll(&memory, &copy), Arrival::Frame);
            let _ = incoming.advance();
            assert_eq!(incoming.poll(&memory, &copy), Arrival::Frame);
            incoming
        };
        let end = match kind {
            FrameKind::Fixed => geometry.stride() - WORD,
            FrameKind::Variable => incoming.arrived().lengths.places(Mode::Checked).2,
        };
        let mut body = vec![0; end - HEADER_BYTES];
        memory.read_into(incoming.watched() + HEADER_BYTES, &mut body);
        let mut expected = [&[1; 3][..], &[0; 5], &[2; 9], &[0; 7], &[3], &[0; 7]].concat();
        expected.resize(body.len(), 0);
        assert_eq!(body, expected, "{kind:?}");
    }
}

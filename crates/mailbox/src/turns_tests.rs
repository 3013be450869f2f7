//! Senders take turns, also with one whose frames are all malformed.

use gossamer_segment::Segments;
use transport_shm::ShmTransport;

use crate::frame::{FrameHeader, Lengths, Parts, encode, tag};
use crate::layout::{Cursor, WORD};
use crate::{Mailbox, MailboxError, Sender};

/// Fills the banks of `sender` with frames that claim more bytes than a frame has.
fn fill_with_malformed(sender: &Sender) {
    let mut cursor = Cursor::new(&sender.geometry, sender.set);
    let lengths = Lengths { payload: u32::MAX, ..Lengths::default() };
    for number in 0..sender.geometry.set_frames() {
        let tag = tag(sender.claim.epoch(), number);
        let words = encode(tag, &FrameHeader::default(), lengths);
        for (index, word) in words.iter().enumerate().rev() {
            sender.mailbox.signal(cursor.at + index * WORD, *word).expect("memory");
        }
        let _ = cursor.advance();
    }
}

#[test]
fn malformed_frames_hold_up_no_other_sender() {
    let transport = ShmTransport::in_process(1, 1).expect("a rack").remove(0);
    let segments = Segments::new(transport);
    let _attached = segments.attach(0).expect("a thread");
    let builder = Mailbox::builder("inbox").banks(2).frames(4).frame_bytes(64).senders(2);
    let mut inbox = builder.export(&segments).expect("a mailbox");
    let [hostile, mut honest] = [(); 2].map(|()| Sender::options(&segments).open("inbox").unwrap());
    while inbox.senders() < 2 {
        assert!(inbox.poll().expect("no frame").is_none());
    }
    fill_with_malformed(&hostile);
    for number in 0..2 {
        let header = FrameHeader { reply: number, ..FrameHeader::default() };
        honest.send(&header, Parts::default()).expect("room");
    }
    let taken: Vec<_> = (0..4)
        .map(|_| match inbox.poll() {
            Ok(Some(frame)) => Some(frame.header().reply),
            Ok(None) => panic!("there are frames"),
            Err(MailboxError::Malformed { .. }) => None,
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(taken, [None, Some(0), None, Some(1)]);
}

//! A receiver that has no memory to map a sender's flags for a while.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use gossamer_segment::Segments;
use transport_api::conformance::Altered;
use transport_shm::ShmTransport;

use crate::{FrameHeader, Mailbox, Parts, Sender};

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_sender_whose_flags_cannot_be_mapped_yet_is_not_forgotten() {
    const FRAMES: u64 = 5;
    let hosts = ShmTransport::in_process(2, 1).expect("a rack");
    let (receiver, faults) = Altered::faulty(hosts[0].clone());
    let receiver = Segments::new(receiver);
    let _attached = receiver.attach(0).expect("a thread");
    // Each frame needs the flag of the one before it.
    let builder = Mailbox::builder("inbox").banks(1).frames(1).frame_bytes(64);
    let inbox = builder.export(&receiver).expect("a mailbox");
    faults.no_import.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        // Dropped in here, also by a panic: then the sender ends, too.
        let mut inbox = inbox;
        scope.spawn(|| {
            let segments = Segments::new(hosts[1].clone());
            let _attached = segments.attach(0).expect("a thread");
            let open = Sender::options(&segments).timeout(TIMEOUT).open("inbox");
            let mut sender = open.expect("an open mailbox");
            for reply in 0..FRAMES {
                let header = FrameHeader { reply, ..FrameHeader::default() };
                sender.send(&header, Parts::default()).expect("a frame");
            }
            sender.close(TIMEOUT).expect("the receiver takes everything");
        });
        for _ in 0..20 {
            let none = inbox.next_timeout(Duration::from_millis(1)).expect("no error");
            assert!(none.is_none(), "a frame of a sender without flags");
        }
        faults.no_import.store(false, Ordering::Relaxed);
        for number in 0..FRAMES {
            let frame = inbox.next_timeout(TIMEOUT).expect("no error").expect("a frame");
            assert_eq!(frame.header().reply, number);
        }
        while inbox.senders() > 0 {
            assert!(inbox.next_timeout(Duration::from_millis(1)).expect("no error").is_none());
        }
    });
}

//! The suite that mailboxes pass on every transport, instantiated by one macro.
//!
//! ```text
//!   // a test program of a crate that has a transport
//!   fn rack(hosts: u32, threads: u32) -> transport_api::conformance::Rack { .. }
//!   mailbox::conformance!(rack);
//! ```
//!
//! A test is a play with one script for each [player](gossamer_segment::conformance::player). Player 0
//! receives. A test that does not end within [`DEADLINE`] fails.

pub mod frames;
pub mod life;

pub use gossamer_segment::conformance::DEADLINE;
use gossamer_segment::conformance::player::{Player, bounded, play, play_in, script};
#[doc(hidden)]
pub use transport_api::conformance_tests;

use crate::{FrameHeader, Mailbox, MailboxBuilder, Parts, Sender};

/// Instantiates the whole suite for the racks that a [`Make`](transport_api::conformance::Make) makes. Attributes in front of the
/// function apply to every test. `one_host` behind it leaves out the tests that need several hosts.
#[macro_export]
macro_rules! conformance {
    ($(#[$attribute:meta])* $make:path) => {
        $crate::conformance!($(#[$attribute])* $make, one_host);
        $crate::conformance::conformance_tests! {
            [$(#[$attribute])*] $make, [$crate::conformance]:
            life {
                a_sender_learns_that_its_receiver_is_lost, the_banks_of_a_lost_sender_are_freed,
                an_open_that_waits_learns_that_its_receiver_is_lost,
            }
        }
    };
    ($(#[$attribute:meta])* $make:path, one_host) => {
        $crate::conformance::conformance_tests! {
            [$(#[$attribute])*] $make, [$crate::conformance]:
            frames {
                frames_of_every_size_come_back, fixed_frames_of_every_size_come_back,
                frames_of_several_senders_keep_their_order, a_full_bank_stops_its_sender,
                a_receiver_and_a_sender_that_sleep_go_on, a_receiver_that_never_sleeps_needs_no_wake,
                a_frame_that_does_not_fit_is_refused,
            }
            life {
                a_dropped_sender_gives_its_banks_back, a_full_mailbox_takes_no_more_senders,
                closing_waits_until_all_is_taken, a_dropped_mailbox_is_closed,
                what_is_no_mailbox_is_not_opened, threads_that_are_not_attached_send_and_receive,
            }
        }
    };
}

/// What players do with mailboxes.
trait Mailboxes {
    fn export_mailbox(&self, builder: MailboxBuilder) -> Mailbox;

    fn open_mailbox(&self, name: &str) -> Sender;

    /// Takes frames until all players have come to this meeting.
    fn serve_until(&self, inbox: &mut Mailbox, meeting: usize, each: impl FnMut(Taken));
}

impl Mailboxes for Player {
    fn export_mailbox(&self, builder: MailboxBuilder) -> Mailbox {
        builder.export(&self.segments).expect("a mailbox")
    }

    fn open_mailbox(&self, name: &str) -> Sender {
        let options = Sender::options(&self.segments).timeout(DEADLINE / 2);
        options.open(name).expect("an open mailbox")
    }

    fn serve_until(&self, inbox: &mut Mailbox, meeting: usize, mut each: impl FnMut(Taken)) {
        self.until("the other players", || {
            while let Some(frame) = inbox.poll().expect("a frame") {
                each(Taken::of(&frame));
            }
            self.has_met(meeting)
        });
    }
}

/// `len` bytes that differ from those of other seeds, and from their neighbours.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let byte =
        |n: u64| (n.wrapping_add(seed << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as u8;
    (0..len as u64).map(byte).collect()
}

/// A copy of a frame.
#[derive(Debug, PartialEq)]
struct Taken {
    header: FrameHeader,
    parts: [Vec<u8>; 3],
}

impl Taken {
    fn of(frame: &crate::Frame<'_>) -> Taken {
        let mut parts =
            [frame.args_len(), frame.payload_len(), frame.attachment_len()].map(|len| vec![0; len]);
        let [args, payload, attachment] = &mut parts;
        frame.copy_args(args);
        frame.copy_payload(payload);
        frame.copy_attachment(attachment);
        Taken { header: *frame.header(), parts }
    }

    /// The frame number `number` of a sender, with parts of these lengths.
    fn numbered(number: u64, lens: [usize; 3]) -> Taken {
        let mut at = 0;
        let parts = lens.map(|len| {
            at += 1;
            pattern(len, 4 * number + at)
        });
        let mut id = [0xa5; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        let header = FrameHeader { kind: number as u32 ^ 0xf000_0000, id, reply: !number };
        Taken { header, parts }
    }

    fn number(&self) -> u64 {
        !self.header.reply
    }

    fn parts(&self) -> Parts<'_> {
        let [args, payload, attachment] = &self.parts;
        Parts { args, payload, attachment }
    }

    fn send(&self, sender: &mut Sender) {
        sender.send(&self.header, self.parts()).expect("a frame that is sent");
    }
}

//! Frames and flags over connections: what travels together, and which senders are notified; senders in
//! mapped memory are not.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender as Channel, channel};
use std::time::Duration;

use gossamer_segment::Segments;
use transport_api::Transport;
use transport_api::conformance::within;
use transport_shm::ShmTransport;
use transport_tcp::TcpTransport;

use crate::claim::SLEEPS_FOR;
use crate::frame::{FrameHeader, Parts};
use crate::receiver::{LOOK_AT_LAST, Mailbox};
use crate::sender::Sender;

/// What one side says to the other beside the mailbox.
struct Talk {
    says: Channel<u64>,
    hears: Receiver<u64>,
}

/// Two hosts that are connected over TCP.
fn connected() -> Vec<Arc<dyn Transport>> {
    let rack = TcpTransport::in_process(2, 1, |_| ()).expect("a rack");
    rack.into_iter().map(|host| host as Arc<dyn Transport>).collect()
}

/// Two hosts that share memory.
fn sharing() -> Vec<Arc<dyn Transport>> {
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    rack.into_iter().map(|host| host as Arc<dyn Transport>).collect()
}

/// Runs a receiver, whose mailbox has so many banks of one frame each, and a sender, on the two hosts of a
/// rack.
fn on_two_hosts(
    rack: fn() -> Vec<Arc<dyn Transport>>,
    banks: u32,
    receive: fn(Mailbox, &Talk),
    send: fn(Sender, &Talk),
) {
    within(Duration::from_secs(60), move || {
        let hosts = rack().into_iter().map(Segments::new);
        let [here, there]: [Segments; 2] = hosts.collect::<Vec<_>>().try_into().expect("two hosts");
        let ((says, heard), (says_too, hears)) = (channel(), channel());
        let receiver = Talk { says, hears };
        let sender = Talk { says: says_too, hears: heard };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _attached = here.attach(0).expect("a thread");
                let builder = Mailbox::builder("streamed").banks(banks).frames(1).frame_bytes(8);
                receive(builder.never_sleeps().export(&here).expect("a mailbox"), &receiver);
            });
            scope.spawn(move || {
                let _attached = there.attach(0).expect("a thread");
                let options = Sender::options(&there).timeout(Duration::from_secs(30));
                send(options.open("streamed").expect("a bank set"), &sender);
            });
        });
    });
}

/// Takes the next frame; the polls that it took.
fn take(inbox: &mut Mailbox) -> usize {
    (1..).find(|_| inbox.poll().expect("no error").is_some()).expect("a frame")
}

fn send(sender: &mut Sender) {
    while !sender.try_send(&FrameHeader::default(), Parts::default()).expect("a receiver") {}
}

/// A poll that finds nothing receives what has arrived on connections, and looks again.
#[test]
fn a_frame_comes_with_the_next_poll() {
    const COUNT: usize = 50;
    for banks in [1, 4] {
        on_two_hosts(
            connected,
            banks,
            |mut inbox, talk| {
                while inbox.senders() == 0 {
                    assert!(inbox.poll().expect("no error").is_none());
                }
                let mut polls: Vec<_> = (0..COUNT)
                    .map(|_| {
                        // The frame is on the way.
                        talk.hears.recv().expect("the sender");
                        let polls = take(&mut inbox);
                        // Its flag leaves, if it has not.
                        assert!(inbox.poll().expect("no error").is_none());
                        talk.says.send(0).expect("the sender");
                        polls
                    })
                    .collect();
                polls.sort_unstable();
                assert!(polls[COUNT / 2] <= 1, "{polls:?}");
            },
            |mut sender, talk| {
                for number in 0..COUNT {
                    send(&mut sender);
                    talk.says.send(number as u64).expect("the receiver");
                    talk.hears.recv().expect("the receiver");
                }
            },
        );
    }
}

/// The flags of a sender that is awake arrive without a notification; one that sleeps is notified once.
#[test]
fn only_a_sender_that_sleeps_is_notified_of_flags() {
    const COUNT: u64 = 20;
    on_two_hosts(
        connected,
        1,
        |mut inbox, talk| {
            for _ in 0..COUNT {
                let _polls = take(&mut inbox);
            }
            // The sender says that it sleeps for a frame that the last flag admits.
            while talk.hears.try_recv().is_err() {
                assert!(inbox.poll().expect("no error").is_none());
            }
            let _ = talk.says.send(0);
        },
        |mut sender, talk| {
            (0..COUNT).for_each(|_| send(&mut sender));
            while !sender.outgoing.may_write(sender.flags.segment.memory()) {
                sender.segments().poll();
            }
            let notification = sender.flags.notifications.try_next().expect("a rack");
            assert!(notification.is_none(), "{notification:?}");
            let at = sender.geometry.claim_at(sender.set) + SLEEPS_FOR;
            let word = sender.claim.frame_word(COUNT);
            sender.mailbox.write(at, &word.to_ne_bytes()).expect("a write");
            let next = || sender.flags.notifications.wait_timeout(Duration::from_secs(30));
            assert!(next().expect("a rack").is_some(), "it is woken");
            // Once: a second one would be on its way.
            for _ in 0..3 {
                sender.mailbox.fence().expect("a receiver");
                sender.segments().poll();
            }
            assert!(sender.flags.notifications.try_next().expect("a rack").is_none());
            talk.says.send(0).expect("the receiver");
            talk.hears.recv().expect("the receiver");
        },
    );
}

/// The receiver reads in mapped memory whether a sender sleeps, so a malicious sender that keeps rewriting
/// its claim costs it no notification.
#[test]
fn a_sender_in_mapped_memory_is_not_notified_for_its_claim() {
    on_two_hosts(
        sharing,
        1,
        |mut inbox, talk| {
            let _polls = take(&mut inbox);
            for _ in talk.hears.iter() {
                // More than one look at the claim.
                for _ in 0..4 * LOOK_AT_LAST {
                    assert!(inbox.poll().expect("no error").is_none());
                }
                talk.says.send(0).expect("the sender");
            }
        },
        |mut sender, talk| {
            send(&mut sender);
            while !sender.outgoing.may_write(sender.flags.segment.memory()) {
                std::thread::yield_now();
            }
            assert!(sender.mailbox.is_mapped());
            let at = sender.geometry.claim_at(sender.set) + SLEEPS_FOR;
            for _ in 0..3 {
                let word = sender.claim.frame_word(1);
                sender.mailbox.write(at, &word.to_ne_bytes()).expect("a write");
                talk.says.send(0).expect("the receiver");
                talk.hears.recv().expect("the receiver");
                sender.segments().poll();
                let notification = sender.flags.notifications.try_next().expect("a rack");
                assert!(notification.is_none(), "{notification:?}");
                // The receiver answers each value once.
                sender.mailbox.write(at, &[0; 8]).expect("a write");
                talk.says.send(0).expect("the receiver");
                talk.hears.recv().expect("the receiver");
            }
        },
    );
}

/// A receiver may wait for anything once it has taken a frame: the sender is not kept from writing the next
/// one by a flag that waits for the receiver's next poll.
#[test]
fn a_sender_goes_on_while_the_receiver_waits() {
    on_two_hosts(
        connected,
        1,
        |mut inbox, talk| {
            for number in 1..5 {
                let _polls = take(&mut inbox);
                while talk.hears.recv().expect("the frame behind it is written") < number {}
            }
        },
        |mut sender, talk| {
            for number in 0..5 {
                send(&mut sender);
                talk.says.send(number).expect("the receiver");
            }
        },
    );
}

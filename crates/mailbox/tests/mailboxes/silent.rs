//! Senders that write frames and never look at what the receiver has for them: flags, notifications,
//! answers. They cost the receiver nothing that others would notice.
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender as Channel, TryRecvError, channel};
use std::time::Duration;

use gossamer_segment::{HostId, RemoteSegment, Segments};
use mailbox::{FrameHeader, Mailbox, Parts, Sender};
use transport_api::Transport;
use transport_api::conformance::within;
use transport_api::integrity::checksum_of;
use transport_shm::ShmTransport;
use transport_tcp::TcpTransport;

/// Where the first claim is, and the first frame of a mailbox with two senders; where flags have the
/// flag of the first bank: `layout.rs`.
const CLAIM: usize = 128;
const FRAMES: usize = CLAIM + 2 * 64;
const FLAG: usize = 64;

/// More than the notifications that are held back for a thread, and that a transport takes in advance.
const COUNT: u64 = 60_000;

fn header(reply: u64) -> FrameHeader {
    FrameHeader { reply, ..FrameHeader::default() }
}

/// Opens the mailbox; does nothing from the first message to the second; serves its lanes otherwise,
/// until there is no one to send messages.
fn fall_silent(segments: &Segments, is_open: &Channel<()>, messages: &Receiver<()>) {
    let _attached = segments.attach(1).expect("a thread");
    let options = Sender::options(segments).timeout(Duration::from_secs(30));
    let _sender = options.open("silent").expect("a bank set");
    is_open.send(()).expect("the receiver");
    while messages.try_recv().is_err() {
        segments.poll();
    }
    messages.recv().expect("the receiver");
    while messages.try_recv() != Err(TryRecvError::Disconnected) {
        segments.poll();
    }
}

/// The next frame has this reply token.
fn takes(inbox: &mut Mailbox, reply: u64) {
    let frame = inbox.next().expect("a frame");
    assert_eq!(frame.header().reply, reply);
}

/// Writes frame `number` as the silent sender would, which has a mailbox of one bank with one frame.
fn write_frame(raw: &RemoteSegment, epoch: u64, number: u64, is_mapped: bool) {
    let tag = epoch << 32 | number;
    let words = [tag, 0, 0, 0, 0, number];
    let closing = if is_mapped { tag } else { checksum_of(6, |at| words[at]) };
    let words: [u64; 7] = std::array::from_fn(|at| words.get(at).copied().unwrap_or(closing));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    raw.write(FRAMES, &bytes).expect("a write");
}

fn one_silent_sender_stops_no_other(hosts: &[Arc<dyn Transport>]) {
    let segments = Segments::new(hosts[0].clone());
    let there = Segments::new(hosts[1].clone());
    let _attached = segments.attach(0).expect("a thread");
    let builder = Mailbox::builder("silent").banks(1).frames(1).frame_bytes(8).senders(2);
    let mut inbox = builder.export(&segments).expect("a mailbox");
    let raw = segments.open("silent").expect("its segment");
    let (is_open, opened) = channel();
    let (tell, messages) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || fall_silent(&there, &is_open, &messages));
        let mut is_open = false;
        while !is_open || inbox.senders() == 0 {
            is_open |= opened.try_recv().is_ok();
            assert!(inbox.poll().expect("no error").is_none(), "a frame");
        }
        let epoch = raw.at_byte::<u64>(CLAIM).read().expect("a claim") >> 32;
        let is_mapped = hosts[0].maps(HostId(1));
        // It says that it sleeps, for ever.
        let flags = (0..16).find_map(|number| {
            let name = format!("mailbox.flags/{number}");
            segments.options().host(HostId(1)).open(&name).ok()
        });
        let flags = flags.expect("its flags");
        if is_mapped {
            flags.write(0, &1_u64.to_ne_bytes()).expect("a write");
        }
        tell.send(()).expect("the other thread");
        for number in 0..COUNT {
            write_frame(&raw, epoch, number, is_mapped);
            takes(&mut inbox, number);
            assert!(inbox.poll().expect("no error").is_none(), "a frame");
        }
        let mut other = Sender::open(&segments, "silent").expect("a bank set");
        for reply in 0..100 {
            other.send(&header(reply), Parts::default()).expect("a frame");
            takes(&mut inbox, reply);
        }
        // What the receiver owes the silent one comes once that takes notifications.
        tell.send(()).expect("the other thread");
        while flags.at_byte::<u64>(FLAG).read().expect("a flag") != COUNT {
            assert!(inbox.poll().expect("no error").is_none(), "a frame");
        }
        drop(tell);
    });
}

#[test]
fn one_silent_sender_stops_no_other_over_shared_memory() {
    within(Duration::from_secs(60), || {
        let rack = ShmTransport::in_process(2, 2).expect("a rack");
        let rack: Vec<_> = rack.into_iter().map(|it| it as Arc<dyn Transport>).collect();
        one_silent_sender_stops_no_other(&rack);
    });
}

#[test]
fn one_silent_sender_stops_no_other_over_connections() {
    within(Duration::from_secs(60), || {
        let rack = TcpTransport::in_process(2, 2, |_| ()).expect("a rack");
        let rack: Vec<_> = rack.into_iter().map(|it| it as Arc<dyn Transport>).collect();
        one_silent_sender_stops_no_other(&rack);
    });
}

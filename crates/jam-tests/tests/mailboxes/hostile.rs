//! Senders that keep no rule: their frames are rejected, and the receiver goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gossamer::jam::entry::Types;
use gossamer::jam::mailbox::{FailureKind, MailboxBuilder, ReactiveMailbox};
use gossamer::jam::{Digest, LoadedJam, Mode, Policy, Sendable};
use gossamer_jam_tests::jams::held::HELD;
use gossamer_jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::slot::SLOT;
use gossamer_jam_tests::{Hold, Table, UNSEEN, table_slot};
use gossamer_segment::RemoteSegment;
use jam_format::{Blob, Machine};
use mailbox::{FrameHeader, Parts};
use transport_api::conformance::Make;

use crate::play::{Jams, WITHIN, play, script, small};

/// The kinds of frames: `form.rs`.
const BY_DIGEST: u32 = 1;
const LOCAL: u32 = 2;

fn id(digest: &Digest) -> [u8; 16] {
    *digest.as_bytes()
}

/// A jam that does nothing, and believes that it was called with eight bytes of arguments and a payload of
/// words: as in C, its entry does not look.
pub(crate) fn trusting(name: &str) -> Vec<u8> {
    let machine = Machine::CURRENT.expect("a machine that jams are built for");
    let text: &[u8] = match machine {
        // xor eax, eax; ret
        Machine::X86_64 => &[0x31, 0xc0, 0xc3],
        // mov w0, 0; ret
        Machine::Aarch64 => &[0x00, 0x00, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6],
    };
    let blob = Blob {
        name,
        text,
        entry_signature: Types::<(), u64, u32, ()>::SIGNATURE,
        args_bytes: 8,
        element_bytes: 4,
        ..Blob::new(machine)
    };
    blob.encode().expect("a blob")
}

/// Frames that no sender of this build writes, with what becomes of each.
pub(crate) fn hostile_frames_are_rejected(make: Make) {
    const FRAMES: usize = 17;
    let receiver = script(|player| {
        let mailbox = small("hostile").export(&player.segments).expect("a mailbox");
        let inbox = ReactiveMailbox::new(mailbox).with(Table::new(1 << 12));
        let mut inbox = inbox.with_policy(Policy::AnyPeer);
        player.meet();
        let mut kinds = Vec::new();
        player.until("hostile frames", || {
            if let Some(outcome) = inbox.poll().expect("a frame") {
                kinds.push(outcome.into_result().err().map(|failure| failure.reason.kind()));
            }
            kinds.len() == FRAMES
        });
        let expected = [
            Some(FailureKind::Malformed),
            Some(FailureKind::Malformed),
            Some(FailureKind::NoCode),
            Some(FailureKind::NoCode),
            Some(FailureKind::NoCode),
            Some(FailureKind::Code),
            Some(FailureKind::Code),
            Some(FailureKind::Code),
            Some(FailureKind::NotLocal),
            None,
            Some(FailureKind::Lengths),
            Some(FailureKind::Lengths),
            Some(FailureKind::Lengths),
            None,
            Some(FailureKind::Lengths),
            Some(FailureKind::Lengths),
            Some(FailureKind::Lengths),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(inbox.stats().failed(), FRAMES as u64 - 2);
        player.serve(&mut inbox);
        let table = inbox.get_mut::<Table>().expect("the table");
        // The one that ran, then those of the honest sender.
        assert_eq!([5, 7, 8].map(|key| table_slot(table, key)), [0, 64, 128]);
    });
    let sender = script(|player| {
        player.meet();
        let mut raw = player.open_raw("hostile");
        let package = gossamer::jam::Package::parse(UNSEEN).expect("a package");
        // No test of this program can link it: code of a digest that is linked is not looked at.
        let unseen = package.blob("wrong_types").expect("its blob");
        let slot = SLOT.code().expect("its code");
        let mut send = |kind: u32, id: [u8; 16], reply: u64, args: &[u8], code: &[u8]| {
            let parts = Parts { args, payload: &[], attachment: code };
            raw.send(&FrameHeader { kind, id, reply }, parts).expect("a frame");
        };
        let (key, other) = (5_u64.to_ne_bytes(), id(&Digest::of(b"other")));
        // Kinds that there are not.
        send(0, id(slot.digest()), 0, &key, slot.bytes());
        send(u32::MAX, id(slot.digest()), 0, &key, slot.bytes());
        // Code that is nowhere: without a token, with one of nobody, at a place that is nowhere.
        send(BY_DIGEST, other, 0, &key, &[]);
        send(BY_DIGEST | 1 << 4, other, 77, &key, &[]);
        send(BY_DIGEST | u32::MAX << 4, other, u64::MAX, &key, &[]);
        // A forged digest, code that is cut, and code of a changed byte.
        send(BY_DIGEST, other, 0, &key, unseen);
        let cut = &unseen[..unseen.len() - 8];
        send(BY_DIGEST, id(&Digest::of(cut)), 0, &key, cut);
        let mut changed = unseen.to_vec();
        *changed.last_mut().expect("a byte") ^= 1;
        send(BY_DIGEST, id(&Digest::of(unseen)), 0, &key, &changed);
        // No Local Function.
        send(LOCAL, other, 0, &key, &[]);
        // Good code, each time, as other tests evict it; then arguments that are too short, too long, and none.
        send(BY_DIGEST, id(slot.digest()), 0, &key, slot.bytes());
        send(BY_DIGEST, id(slot.digest()), 0, &key[..7], slot.bytes());
        send(BY_DIGEST, id(slot.digest()), 0, &[0; 3000], slot.bytes());
        send(LOCAL, id(slot.digest()), 0, &[], &[]);
        // A jam that does not look at lengths: the receiver does.
        let trusting = trusting("trusting");
        for (args, payload) in [(8, 12), (7, 12), (0, 0), (8, 10)] {
            let (args, payload) = (&[0; 8][..args], &[0; 12][..payload]);
            let id = id(&Digest::of(&trusting));
            let parts = Parts { args, payload, attachment: &trusting };
            raw.send(&FrameHeader { kind: BY_DIGEST, id, reply: 0 }, parts).expect("a frame");
        }
        // An honest one.
        let mut sender = player.open_mailbox("hostile");
        [7, 8].into_iter().for_each(|key| sender.send(&SLOT, key, &[]).expect("a call"));
        let report = sender.close(WITHIN).expect("all calls run");
        assert_eq!((report.handled, report.failed), (2, 0));
    });
    play(make, [receiver, sender]);
}

/// Whether frames are taken as they are, so that a peer can change them after they have arrived.
fn has_no_checksum(mailbox: &RemoteSegment) -> bool {
    mailbox.is_mapped() || mailbox.is_streamed()
}

/// A mailbox with one place for frames, so that what was sent is where the receiver looks for the next one.
pub(crate) fn single(name: &str) -> MailboxBuilder {
    small(name).banks(1).frames(1).senders(1)
}

/// Where the frame of a [`single`] mailbox begins: after the dimensions and the claim of its sender.
pub(crate) const FRAME_AT: usize = 192;

/// The bytes of a frame, written again where the receiver awaits the next one: a replay.
pub(crate) fn a_frame_that_is_written_again_does_not_run(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(single("replayed"));
        player.meet();
        player.until("a call", || inbox.poll().expect("a frame").is_some());
        let mut is_quiet = || inbox.poll().expect("no error").is_none();
        let written = player.begin_meeting();
        player.until("the replay", || {
            assert!(is_quiet(), "a call that was not sent");
            player.has_met(written)
        });
        assert!((0..2_000).all(|_| is_quiet()), "the call runs again");
        player.meet();
        player.serve(&mut inbox);
        assert_eq!((inbox.stats().ran(), inbox.stats().failed()), (2, 0));
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("replayed");
        let raw = player.segments.open("replayed").expect("its segment");
        sender.send(&SLOT, 1, &[]).expect("a call");
        sender.flush(WITHIN).expect("it runs");
        let mut frame = vec![0; raw.len() - FRAME_AT];
        raw.read_block(FRAME_AT, &mut frame).expect("what was sent");
        let is_there = frame.windows(16).any(|it| *it == id(SLOT.code().unwrap().digest()));
        assert!(is_there, "the frame is what is written again");
        raw.write_block(FRAME_AT, &frame).expect("a write");
        raw.fence().expect("it is there");
        player.meet();
        player.meet();
        sender.send(&SLOT, 2, &[]).expect("a call");
        assert_eq!(sender.close(WITHIN).expect("all calls run").handled, 2);
    });
    play(make, [receiver, sender]);
}

/// Code that has arrived in a frame is the receiver's: its sender writes over it, and calls it again.
pub(crate) fn code_that_changes_after_it_arrived_runs_as_it_was(make: Make) {
    // No other test has it, so it comes from the frame.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let blob = trusting(&format!("trusting_{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let jam = LoadedJam::<(), u64, u32, ()>::from_blob(&blob).expect("a jam");
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(single("overwritten"));
        inbox.set_policy(Policy::AnyPeer);
        player.meet();
        player.serve(&mut inbox);
        let stats = inbox.stats();
        assert_eq!((stats.ran(), stats.failed(), stats.arrived()), (2, 0, 1));
    });
    let sender = script(move |player| {
        player.meet();
        let mut sender = player.open_mailbox("overwritten");
        let raw = player.segments.open("overwritten").expect("its segment");
        sender.send(&jam.in_mode(Mode::Injected), 1, &[]).expect("a call");
        sender.flush(WITHIN).expect("it runs");
        // No instruction, on any machine, that a jam survives.
        raw.write_block(FRAME_AT, &vec![0xcc; raw.len() - FRAME_AT]).expect("a write");
        raw.fence().expect("it is there");
        sender.send(&jam.in_mode(Mode::Cached), 1, &[]).expect("a call");
        let report = sender.close(WITHIN).expect("all calls run");
        assert_eq!((report.handled, report.failed), (2, 0));
    });
    play(make, [receiver, sender]);
}

/// The sender writes over a frame whose jam runs: the jam has what was sent.
pub(crate) fn a_frame_that_changes_while_it_runs_runs_as_it_was(make: Make) {
    /// Where the two are.
    #[derive(Default)]
    struct Turn {
        runs: AtomicBool,
        is_written: AtomicBool,
    }
    let turn = Arc::new(Turn::default());
    let receiver = script({
        let turn = turn.clone();
        move |player| {
            let mut inbox = player.export_mailbox(single("held"));
            let memory = inbox.mailbox().segment().memory().clone();
            let hold = move || {
                turn.runs.store(true, Ordering::Release);
                let start = Instant::now();
                while !turn.is_written.load(Ordering::Acquire) {
                    assert!(start.elapsed() < WITHIN, "the sender does not write");
                    std::thread::yield_now();
                }
                assert_eq!(memory.load(FRAME_AT, Ordering::Acquire), u64::MAX, "it is written");
            };
            inbox.get_mut::<Table>().expect("the table").hold = Hold(Some(Box::new(hold)));
            player.meet();
            player.serve(&mut inbox);
            let table = inbox.get_mut::<Table>().expect("the table");
            let at = table_slot(table, 5) as usize;
            assert_eq!(table.bytes()[at..at + 64], [7; 64], "what was sent");
        }
    });
    let sender = script(move |player| {
        player.meet();
        let mut sender = player.open_mailbox("held");
        let raw = player.segments.open("held").expect("its segment");
        sender.send(&HELD, 5, &[7; 64]).expect("a call");
        player.until("the jam", || turn.runs.load(Ordering::Acquire));
        raw.write_block(FRAME_AT, &vec![0xff; raw.len() - FRAME_AT]).expect("a write");
        // The thread that runs the jam takes nothing meanwhile: over connections, another one does.
        raw.fence().expect("it is there");
        turn.is_written.store(true, Ordering::Release);
        assert_eq!(sender.close(WITHIN).expect("it runs").handled, 1);
    });
    play(make, [receiver, sender]);
}

/// A peer writes to frames while they are taken: arguments, payload and code, never the header. Each runs
/// or is rejected; memory outside of the table stays as it is, and what comes later runs.
pub(crate) fn frames_that_change_while_they_run_do_no_harm(make: Make) {
    const CALLS: u64 = 2_000;
    /// The key of a call that nobody changes.
    const HONEST: u64 = u64::MAX;
    fn builder() -> MailboxBuilder {
        small("changing").banks(2).frames(2).frame_bytes(2048).senders(1).fixed()
    }
    /// What the three have done.
    #[derive(Default)]
    struct Done {
        rejected: AtomicU64,
        sending: AtomicBool,
        writing: AtomicBool,
    }
    let done = Arc::new(Done::default());
    let receiver = script({
        let done = done.clone();
        move |player| {
            let mut inbox = player.export_mailbox(builder());
            player.meet();
            let mut count = 0;
            player.serve_each(&mut inbox, |inbox, outcome| {
                count += 1;
                let table = inbox.get::<Table>().expect("the table");
                assert!(table.is_intact(), "memory beside the table was written");
                let Err(failure) = outcome.into_result() else { return };
                match failure.reason.kind() {
                    FailureKind::Code => done.rejected.fetch_add(1, Ordering::Relaxed),
                    FailureKind::Panicked => 0,
                    _ => panic!("{failure:?}"),
                };
            });
            assert_eq!(count, inbox.stats().ran() + inbox.stats().failed());
            let table = inbox.get_mut::<Table>().expect("the table");
            let at = table_slot(table, HONEST) as usize;
            assert_eq!(table.bytes()[at..at + 4], *b"best", "the last call");
        }
    });
    let sender = script({
        let done = done.clone();
        move |player| {
            player.meet();
            let mut sender = player.open_mailbox("changing");
            let injected = INDIRECT_PUT.in_mode(Mode::Injected);
            let raw = player.segments.open("changing").expect("its segment");
            let needs_more = || has_no_checksum(&raw) && done.rejected.load(Ordering::Relaxed) == 0;
            let (start, mut number) = (Instant::now(), 0);
            while number < CALLS || needs_more() {
                assert!(start.elapsed() < WITHIN, "no frame was changed in time");
                let args = PutArgs { key: number % 50, offset: 0 };
                sender.send(&injected, args, &[7; 60]).expect("a call");
                if number % 16 == 0 {
                    // So that code is looked at again.
                    gossamer::jam::receiver().set_policy(Policy::Signed);
                }
                number += 1;
            }
            let before = sender.flush(WITHIN).expect("all calls are dealt with");
            done.sending.store(true, Ordering::Relaxed);
            player.until("the end of the writes", || done.writing.load(Ordering::Relaxed));
            let args = PutArgs { key: HONEST, offset: 0 };
            sender.send(&injected, args, b"best").expect("a call");
            let report = sender.close(WITHIN).expect("it runs");
            assert_eq!((report.handled, report.failed), (number + 1, before.failed));
        }
    });
    let scribbler = script(move |player| {
        player.meet();
        let raw = player.segments.open("changing").expect("its segment");
        let stride = (2048_usize + 56).next_multiple_of(64);
        let mut number = 0_usize;
        player.until("the sender", || {
            number = number.wrapping_mul(29).wrapping_add(7);
            // A word of the body: of the arguments, the payload or the code. A frame with a checksum would
            // not be one then.
            if has_no_checksum(&raw) {
                let at = FRAME_AT + number % 4 * stride + 48 + number / 4 % 100 * 8;
                raw.write(at, &(number as u64).to_ne_bytes()).expect("a write");
            }
            done.sending.load(Ordering::Relaxed)
        });
        raw.fence().expect("all is written");
        done.writing.store(true, Ordering::Relaxed);
    });
    play(make, [receiver, sender, scribbler]);
}

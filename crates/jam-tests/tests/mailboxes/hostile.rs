//! Senders that keep no rule: their frames are rejected, and the receiver goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gossamer::jam::mailbox::{FailureKind, MailboxBuilder, ReactiveMailbox};
use gossamer::jam::{Digest, Policy, Sendable};
use gossamer_jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::slot::SLOT;
use gossamer_jam_tests::{Table, UNSEEN, table_slot};
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
fn trusting() -> Vec<u8> {
    let machine = Machine::CURRENT.expect("a machine that jams are built for");
    let text: &[u8] = match machine {
        // xor eax, eax; ret
        Machine::X86_64 => &[0x31, 0xc0, 0xc3],
        // mov w0, 0; ret
        Machine::Aarch64 => &[0x00, 0x00, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6],
    };
    let blob =
        Blob { name: "trusting", text, args_bytes: 8, element_bytes: 4, ..Blob::new(machine) };
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
        let trusting = trusting();
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

/// The bytes of a frame, written again where they were: a replay.
pub(crate) fn a_frame_that_is_written_again_does_not_run(make: Make) {
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(small("replayed").senders(1));
        player.meet();
        player.until("a call", || inbox.poll().expect("a frame").is_some());
        player.serve(&mut inbox);
        assert_eq!((inbox.stats().ran(), inbox.stats().failed()), (3, 0));
    });
    let sender = script(|player| {
        player.meet();
        let mut sender = player.open_mailbox("replayed");
        let raw = player.segments.open("replayed").expect("its segment");
        sender.send(&SLOT, 1, &[]).expect("a call");
        sender.flush(WITHIN).expect("it runs");
        // Behind the geometry and the claim of one sender.
        let mut frames = vec![0; raw.len() - 192];
        raw.read_block(192, &mut frames).expect("what was sent");
        let is_there = frames.windows(16).any(|it| *it == id(SLOT.code().unwrap().digest()));
        assert!(is_there, "the frame is among what is written again");
        raw.write_block(192, &frames).expect("a write");
        raw.fence().expect("it is there");
        // Those that follow run, and no other.
        for key in 2..4 {
            sender.send(&SLOT, key, &[]).expect("a call");
            raw.write_block(192, &frames[..64]).expect("a write");
        }
        assert_eq!(sender.close(WITHIN).expect("all calls run").handled, 3);
    });
    play(make, [receiver, sender]);
}

/// A peer writes to frames while they are taken: arguments, payload and code, never the header. Each runs
/// or is rejected; memory outside of the table stays as it is.
pub(crate) fn frames_that_change_while_they_run_do_no_harm(make: Make) {
    const CALLS: u64 = 2_000;
    fn builder() -> MailboxBuilder {
        small("changing").banks(2).frames(2).frame_bytes(2048).senders(1).fixed()
    }
    let receiver = script(|player| {
        let mut inbox = player.export_mailbox(builder());
        player.meet();
        let mut count = 0;
        player.serve_each(&mut inbox, |_, outcome| {
            count += 1;
            let Err(failure) = outcome.into_result() else { return };
            let kind = failure.reason.kind();
            assert!(matches!(kind, FailureKind::Code | FailureKind::Panicked), "{failure:?}");
        });
        assert_eq!(count, inbox.stats().ran() + inbox.stats().failed());
    });
    let is_done = Arc::new(AtomicBool::new(false));
    let has_to_end = is_done.clone();
    let sender = script(move |player| {
        player.meet();
        let mut sender = player.open_mailbox("changing");
        for key in 0..CALLS {
            let args = PutArgs { key: key % 50, offset: 0 };
            let injected = INDIRECT_PUT.in_mode(gossamer::jam::Mode::Injected);
            sender.send(&injected, args, &[7; 60]).expect("a call");
            if key % 16 == 0 {
                // So that code is looked at again.
                gossamer::jam::receiver().set_policy(Policy::Signed);
            }
        }
        sender.flush(WITHIN).expect("all calls are dealt with");
        is_done.store(true, Ordering::Relaxed);
    });
    let scribbler = script(move |player| {
        player.meet();
        let raw = player.segments.open("changing").expect("its segment");
        let stride = (2048_usize + 56).next_multiple_of(64);
        let mut number = 0_usize;
        player.until("the sender", || {
            number = number.wrapping_mul(29).wrapping_add(7);
            // A word of the body: of the arguments, the payload or the code. Where memory is not mapped,
            // the frame has a checksum, which is wrong then, so that it would not be one.
            if raw.is_mapped() {
                let at = 192 + number % 4 * stride + 48 + number / 4 % 100 * 8;
                raw.write(at, &(number as u64).to_ne_bytes()).expect("a write");
            }
            has_to_end.load(Ordering::Relaxed)
        });
    });
    play(make, [receiver, sender, scribbler]);
}

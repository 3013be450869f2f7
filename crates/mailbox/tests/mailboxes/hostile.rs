//! Senders that write anything into a mailbox: the receiver reports or ignores it, and goes on. A single
//! thread plays all sides, so that every test takes the same course each time.
use std::time::Duration;

use gossamer_segment::{Attached, RemoteSegment, Segments};
use mailbox::{FRAME_OVERHEAD, FrameHeader, Mailbox, MailboxBuilder, MailboxError, Parts, Sender};
use transport_api::HostId;
use transport_api::integrity::checksum_of;
use transport_shm::ShmTransport;

/// Where the claims begin, and their distance: `layout.rs`.
const CLAIMS: usize = 128;
const CLAIM: usize = 64;

/// The modes of a hello.
const MAPPED: u64 = 1;
const CHECKED: u64 = 2;

struct Scene {
    segments: Segments,
    _attached: Attached,
    inbox: Mailbox,
    /// The mailbox as a sender sees it that keeps no rule.
    raw: RemoteSegment,
    senders: usize,
    frames: usize,
}

impl Scene {
    fn new(builder: MailboxBuilder, senders: usize, frames: usize) -> Scene {
        let host = ShmTransport::in_process(1, 1).expect("a rack").remove(0);
        let segments = Segments::new(host);
        let attached = segments.attach(0).expect("a thread");
        let builder = builder.senders(senders as u32);
        let inbox = builder.export(&segments).expect("a mailbox");
        let raw = segments.open(inbox.name().as_str()).expect("its segment");
        Scene { segments, _attached: attached, inbox, raw, senders, frames }
    }

    fn write(&self, at: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.raw.write_block(at, &bytes).expect("a write");
    }

    /// Claims a bank set for `host`, with these flags.
    fn claim(&self, set: usize, host: u32, flags: u64, mode: u64) -> u64 {
        self.claim_in(7, set, host, flags, mode)
    }

    /// As [`claim`](Self::claim), in this epoch.
    fn claim_in(&self, epoch: u64, set: usize, host: u32, flags: u64, mode: u64) -> u64 {
        let claim = epoch << 32 | (u64::from(host) + 1);
        let hello = [claim, flags, mode];
        let at = CLAIMS + set * CLAIM;
        self.write(at + 8, &[claim, flags, mode, checksum_of(3, |at| hello[at])]);
        self.write(at, &[claim]);
        epoch
    }

    fn stride(&self) -> usize {
        (self.inbox.frame_bytes() + FRAME_OVERHEAD).next_multiple_of(64)
    }

    /// Where frame `number` of a bank set is.
    fn frame_at(&self, set: usize, number: usize) -> usize {
        CLAIMS + self.senders * CLAIM + (set * self.frames + number % self.frames) * self.stride()
    }

    /// Polls until there are so many senders.
    fn until_senders(&mut self, count: usize) {
        for _ in 0..10_000 {
            if self.inbox.senders() == count {
                return;
            }
            assert!(self.inbox.poll().expect("no error").is_none(), "a frame");
        }
        panic!("{} senders instead of {count}", self.inbox.senders());
    }

    /// Whether one of the next polls gives a frame with this reply token.
    fn takes(&mut self, reply: u64) -> bool {
        (0..2_000).any(|_| match self.inbox.poll() {
            Ok(Some(frame)) => frame.header().reply == reply,
            Ok(None) | Err(MailboxError::Malformed { .. }) => false,
            Err(error) => panic!("{error}"),
        })
    }

    /// Whether none of the next polls gives anything.
    fn is_quiet(&mut self) -> bool {
        (0..500).all(|_| matches!(self.inbox.poll(), Ok(None)))
    }
}

/// The words of an empty frame with this number, and of one with these lengths.
fn frame(epoch: u64, number: u64, reply: u64) -> [u64; 6] {
    [epoch << 32 | number, 0, 0, 0, 0, reply]
}

/// The same words with their checksum behind them.
fn checked(words: &[u64]) -> Vec<u64> {
    [words, &[checksum_of(words.len(), |at| words[at])]].concat()
}

#[test]
fn a_malformed_frame_is_reported_and_skipped() {
    for mode in [MAPPED, CHECKED] {
        let builder = Mailbox::builder("malformed").banks(2).frames(2).frame_bytes(64).fixed();
        let mut scene = Scene::new(builder, 1, 4);
        let epoch = scene.claim(0, 0, 99, mode);
        scene.until_senders(1);
        // 64 bytes of arguments fit, and no byte more.
        let lens =
            [(64 << 32, 0), (65 << 32, 0), (u64::MAX, u64::MAX), (8 << 32, 57), (0, 64 << 32)];
        for (number, (args, rest)) in lens.into_iter().enumerate() {
            let mut words = vec![0; scene.stride() / 8 - 1];
            words[..3].copy_from_slice(&[epoch << 32 | number as u64, args, rest]);
            let tag = words[0];
            let words =
                if mode == CHECKED { checked(&words) } else { [&words[..], &[tag]].concat() };
            scene.write(scene.frame_at(0, number), &words);
            match scene.inbox.poll() {
                Ok(Some(frame)) => {
                    assert!([0, 4].contains(&number), "frame {number}: {frame:?}");
                    assert_eq!(frame.args_len() + frame.attachment_len(), 64);
                }
                Ok(None) => panic!("frame {number} is ignored"),
                Err(MailboxError::Malformed { host, reason }) => {
                    assert!([1, 2, 3].contains(&number), "frame {number}: {reason}");
                    assert_eq!((host, reason.sequence), (HostId(0), number as u64));
                    assert!(reason.len > reason.max && reason.max == 64, "{reason}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn signals_twice_and_frames_without_flags_are_taken_once_or_not_at_all() {
    let builder = Mailbox::builder("twice").banks(2).frames(2).frame_bytes(64).variable();
    let mut scene = Scene::new(builder, 1, 4);
    let epoch = scene.claim(0, 0, 99, CHECKED);
    scene.until_senders(1);
    let write = |scene: &Scene, number: u64| {
        let words = checked(&frame(epoch, number, number));
        scene.write(scene.frame_at(0, number as usize), &words);
    };
    for number in 0..3 {
        write(&scene, number);
        write(&scene, number);
        assert!(scene.takes(number), "frame {number}");
        write(&scene, number);
        assert!(!scene.takes(number), "frame {number} comes twice");
    }
    // One that is ahead of its turn, in the place of the next, is not the next.
    write(&scene, 7);
    assert!(!scene.takes(7));
    // It never looks at its flags: frame 3 is overwritten, and the receiver waits for it.
    write(&scene, 3);
    write(&scene, 7);
    assert!(!scene.takes(7));
    write(&scene, 3);
    assert!(scene.takes(3));
}

/// What was sent before does not come again, also where the receiver looks for the next frame: neither a
/// frame of this sender nor one of another that had the banks.
#[test]
fn an_old_frame_in_the_next_place_is_not_taken() {
    for mode in [MAPPED, CHECKED] {
        let builder = Mailbox::builder("old").banks(2).frames(1).frame_bytes(64).variable();
        let mut scene = Scene::new(builder, 1, 2);
        let epoch = scene.claim(0, 0, 99, mode);
        scene.until_senders(1);
        for number in 0..6 {
            let next = |scene: &Scene, epoch, old| {
                let at = scene.frame_at(0, number as usize);
                scene.write(at, &checked(&frame(epoch, old, 1000)));
            };
            for old in 0..number {
                next(&scene, epoch, old);
                assert!(scene.is_quiet(), "frame {old} comes again as frame {number}");
            }
            next(&scene, epoch - 1, number);
            assert!(scene.is_quiet(), "frame {number} of another sender comes");
            scene
                .write(scene.frame_at(0, number as usize), &checked(&frame(epoch, number, number)));
            assert!(scene.takes(number), "frame {number}");
        }
    }
}

#[test]
fn claims_of_nobody_are_freed() {
    let mut scene = Scene::new(Mailbox::builder("nobody").frame_bytes(64), 2, 32);
    scene.claim(0, 1, 0, MAPPED);
    scene.claim(1, u32::MAX - 1, 0, MAPPED);
    let free = |scene: &Scene| {
        let claim = |set: usize| scene.raw.at_byte::<u64>(CLAIMS + set * CLAIM).read();
        (0..2).all(|set| claim(set).expect("a claim") as u32 == 0)
    };
    for _ in 0..1_000 {
        assert!(scene.inbox.poll().expect("no error").is_none());
    }
    assert!(free(&scene), "a claim of a host that the rack does not have");
    let mut sender = Sender::open(&scene.segments, "nobody").expect("a bank set");
    let header = FrameHeader { reply: 5, ..FrameHeader::default() };
    sender.send(&header, Parts::default()).expect("a frame");
    assert!(scene.takes(5));
}

/// A host that lives, and claims without saying hello, does not keep the banks for ever.
#[test]
fn claims_without_a_hello_are_freed() {
    let is_free = |scene: &mut Scene| {
        for _ in 0..1_000 {
            assert!(scene.inbox.poll().expect("no error").is_none());
        }
        scene.raw.at_byte::<u64>(CLAIMS).read().expect("a claim") as u32 == 0
    };
    let builder = Mailbox::builder("unsaid").frame_bytes(64).hello_within(Duration::ZERO);
    let mut scene = Scene::new(builder, 1, 32);
    scene.write(CLAIMS, &[7 << 32 | 1]);
    assert!(is_free(&mut scene), "no hello in time");
    drop(scene);
    let builder = Mailbox::builder("unsaid").frame_bytes(64).hello_within(Duration::MAX);
    let mut scene = Scene::new(builder, 1, 32);
    scene.write(CLAIMS, &[7 << 32 | 1]);
    assert!(!is_free(&mut scene), "there is time");
    // The end of an earlier sender is none of this one.
    scene.write(CLAIMS + 40, &[6 << 32]);
    assert!(!is_free(&mut scene), "another claim is done");
    scene.write(CLAIMS + 40, &[7 << 32]);
    assert!(is_free(&mut scene), "its hello has failed");
}

/// A receiver that frees the banks of a sender finds the claim of another there: that one keeps them.
#[test]
fn a_bank_set_that_another_has_claimed_is_not_freed() {
    for mode in [MAPPED, CHECKED] {
        let builder = Mailbox::builder("taken").banks(2).frames(2).frame_bytes(64).variable();
        let mut scene = Scene::new(builder, 1, 4);
        for epoch in 7..12 {
            scene.claim_in(epoch, 0, 0, 99, mode);
            scene.write(scene.frame_at(0, 0), &checked(&frame(epoch, 0, epoch)));
            assert!(scene.takes(epoch), "a frame of epoch {epoch}");
            let claim: u64 = scene.raw.at_byte(CLAIMS).read().expect("a claim");
            assert_eq!((claim >> 32, claim as u32), (epoch, 1), "it was freed");
        }
    }
}

/// A sender that always has frames does not keep the receiver from those of others.
#[test]
fn senders_that_have_frames_take_turns() {
    const SENDERS: usize = 3;
    let builder = Mailbox::builder("turns").banks(2).frames(4).frame_bytes(64).variable();
    let mut scene = Scene::new(builder, SENDERS, 8);
    let epochs: Vec<u64> = (0..SENDERS).map(|set| scene.claim(set, 0, 99, CHECKED)).collect();
    scene.until_senders(SENDERS);
    for (set, epoch) in epochs.into_iter().enumerate() {
        for number in 0..8 {
            let words = checked(&frame(epoch, number, set as u64));
            scene.write(scene.frame_at(set, number as usize), &words);
        }
    }
    for turn in 0..8 {
        let mut seen = [0; SENDERS];
        for _ in 0..SENDERS {
            let frame = scene.inbox.poll().expect("no error").expect("a frame");
            seen[frame.header().reply as usize] += 1;
        }
        assert_eq!(seen, [1; SENDERS], "turn {turn}");
    }
}

/// A sender whose banks are taken from it gets an error instead of waiting for ever.
#[test]
fn a_sender_that_has_lost_its_banks_learns_it() {
    let builder = Mailbox::builder("lost").banks(1).frames(1).frame_bytes(64);
    let scene = Scene::new(builder, 1, 1);
    let mut sender = Sender::open(&scene.segments, "lost").expect("a bank set");
    let header = FrameHeader::default();
    sender.send(&header, Parts::default()).expect("a frame");
    assert!(!sender.try_send(&header, Parts::default()).expect("no error"), "its bank is full");
    sender.check_claim().expect("it has its banks");
    let claim: u64 = scene.raw.at_byte(CLAIMS).read().expect("a claim");
    for now in [claim >> 32 << 32, claim + (1 << 32)] {
        scene.write(CLAIMS, &[now]);
        let sent = sender.try_send(&header, Parts::default()).map(drop);
        for ended in [sender.check_claim(), sent] {
            assert!(matches!(ended, Err(MailboxError::Closed(_))), "{now:x}: {ended:?}");
        }
        let waited = sender.send(&header, Parts::default());
        assert!(matches!(waited, Err(MailboxError::Closed(_))), "{now:x}: {waited:?}");
    }
}

/// A sender that names the flags of another one does not make the receiver write to them.
#[test]
fn flags_of_others_are_not_written() {
    let builder = Mailbox::builder("flags").banks(1).frames(1).frame_bytes(64).variable();
    let mut scene = Scene::new(builder, 2, 1);
    let mut honest = Sender::open(&scene.segments, "flags").expect("a bank set");
    let header = |reply| FrameHeader { reply, ..FrameHeader::default() };
    honest.send(&header(1), Parts::default()).expect("a frame");
    assert!(scene.takes(1));
    // Tests of one process share the numbers of flags; few are in use.
    for number in 0..20 {
        let epoch = scene.claim(1, 0, number, MAPPED);
        scene.until_senders(2);
        for sequence in 0..2 {
            let [tag, rest @ ..] = frame(epoch, sequence, 100 + sequence);
            let at = scene.frame_at(1, 0);
            scene.write(at + 8, &[&rest[..], &[tag]].concat());
            scene.write(at, &[tag]);
            assert!(scene.takes(100 + sequence));
        }
        scene.write(CLAIMS + CLAIM, &[0]);
        scene.until_senders(1);
    }
    // Its flag is 1, as often as its bank was emptied.
    assert!(
        honest.try_send(&header(2), Parts::default()).expect("no error"),
        "its flag was changed"
    );
    assert!(scene.takes(2));
}

/// Random words everywhere, many of them such that they mean something.
#[test]
fn noise_does_no_harm() {
    let builder = Mailbox::builder("noise").banks(2).frames(2).frame_bytes(64);
    let mut scene = Scene::new(builder, 3, 4);
    let words = scene.raw.len() / 8;
    let mut state = 0x1994_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut frames, mut malformed) = (0, 0);
    for round in 0..20_000_u64 {
        let at = random(words as u64) as usize * 8;
        let word = match random(6) {
            0 => 0,
            1 => 7 << 32 | random(2),
            2 => 7 << 32 | random(6),
            3 => random(200) << 32 | random(200),
            4 => random(4),
            _ => random(u64::MAX >> 40) << 20,
        };
        scene.write(at, &[word]);
        if round % 50 == 0 {
            scene.claim(random(3) as usize, 0, random(9), 1 + random(2));
        }
        if round % 20 == 0 {
            // Whole frames, so that noise meets receivers that have got on.
            let (set, number) = (random(3) as usize, random(4));
            let words = checked(&frame(7, number, 0));
            scene.write(scene.frame_at(set, number as usize), &words);
        }
        match scene.inbox.poll() {
            Ok(Some(frame)) => {
                let mut bytes = vec![0; frame.payload_len()];
                frame.copy_payload(&mut bytes);
                assert!(frame.args_len() + frame.payload_len() + frame.attachment_len() <= 64);
                frames += 1;
            }
            Ok(None) => {}
            Err(MailboxError::Malformed { .. }) => malformed += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(scene.inbox.senders() <= 3);
    }
    assert!(frames > 0 && malformed > 0, "{frames} frames, {malformed} malformed: no test");
    // All claims are given back: an honest sender gets one.
    for set in 0..3 {
        scene.write(CLAIMS + set * CLAIM, &[200 << 32]);
    }
    for _ in 0..1_000 {
        let _ = scene.inbox.poll();
    }
    let mut sender = Sender::open(&scene.segments, "noise");
    if let Err(MailboxError::NotAMailbox(_)) = sender {
        // The noise is also where senders look for the dimensions.
        return;
    }
    let header = FrameHeader { reply: 1 << 50, ..FrameHeader::default() };
    let sender = sender.as_mut().expect("a bank set");
    sender.send(&header, Parts::default()).expect("a frame");
    assert!(scene.takes(1 << 50));
}

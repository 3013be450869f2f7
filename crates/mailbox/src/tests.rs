//! Frames between an [`Outgoing`] and an [`Incoming`] on memory of this process: every interleaving of
//! calls that proptest makes, and writes that arrive in pieces.

use std::cell::RefCell;
use std::convert::Infallible;

use primitive::SharedBytes;
use primitive::sync::Ordering;
use proptest::prelude::*;
use transport_api::integrity;

use crate::frame::{FrameHeader, Mode, Parts};
use crate::incoming::{Arrival, Incoming};
use crate::layout::{FrameKind, Geometry, WORD, flag_at};
use crate::outgoing::Outgoing;
use crate::target::Target;

const EPOCH: u32 = 5;

/// Memory that writes reach at once.
struct Direct<'a>(&'a SharedBytes);

impl Target for Direct<'_> {
    type Error = Infallible;
    fn write(&self, at: usize, bytes: &[u8], _next: usize) -> Result<(), Infallible> {
        self.0.write_words(at, bytes);
        Ok(())
    }
    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), Infallible> {
        for (number, word) in words.iter().enumerate().rev() {
            self.0.store(at + number * WORD, *word, Ordering::Release);
        }
        Ok(())
    }
}

/// Keeps the words of every write, each with its place, instead of writing them.
#[derive(Default)]
struct Held(RefCell<Vec<(usize, u64)>>);

impl Target for Held {
    type Error = Infallible;
    fn write(&self, at: usize, bytes: &[u8], _next: usize) -> Result<(), Infallible> {
        let words = bytes.as_chunks().0.iter().enumerate();
        let words = words.map(|(number, word)| (at + number * WORD, u64::from_ne_bytes(*word)));
        self.0.borrow_mut().extend(words);
        Ok(())
    }
    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), Infallible> {
        let numbered = words.iter().enumerate().rev();
        self.0.borrow_mut().extend(numbered.map(|(number, word)| (at + number * WORD, *word)));
        Ok(())
    }
}

/// The parts of a frame that a test sends.
#[derive(Clone, Debug, PartialEq)]
struct Message {
    header: FrameHeader,
    parts: [Vec<u8>; 3],
}

impl Message {
    fn parts(&self) -> Parts<'_> {
        let [args, payload, attachment] = &self.parts;
        Parts { args, payload, attachment }
    }

    /// What has arrived, copied out of the memory where it is.
    fn of(incoming: &Incoming, memory: &SharedBytes, copy: &SharedBytes) -> Message {
        let arrived = incoming.arrived();
        let memory = if arrived.is_copied { copy } else { memory };
        let (payload, attachment, _) = arrived.lengths.places(incoming.mode());
        let part = |at: usize, len: u32| {
            let mut bytes = vec![0; len as usize];
            memory.read_into(arrived.at + at, &mut bytes);
            bytes
        };
        let lengths = arrived.lengths;
        Message {
            header: arrived.header,
            parts: [
                part(crate::layout::HEADER_BYTES, lengths.args),
                part(payload, lengths.payload),
                part(attachment, lengths.attachment),
            ],
        }
    }
}

fn message(max: usize) -> impl Strategy<Value = Message> {
    let part = || proptest::collection::vec(any::<u8>(), 0..max / 3 - 7);
    let header = (any::<u32>(), any::<[u8; 16]>(), any::<u64>());
    (header, [part(), part(), part()]).prop_map(|((kind, id, reply), parts)| Message {
        header: FrameHeader { kind, id, reply },
        parts,
    })
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (1..4_u32, 1..4_u32, 3..40_u32, any::<bool>()).prop_map(|(banks, frames, body, is_fixed)| {
        let kind = if is_fixed { FrameKind::Fixed } else { FrameKind::Variable };
        let body = 24 + 8 * body;
        Geometry { banks, frames, body, senders: 2, kind, may_sleep: true }
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    proptest::sample::select(&Mode::ALL[..])
}

/// The receiver's side: its memory, that of the flags, and what it has.
struct Inbox {
    memory: SharedBytes,
    copy: SharedBytes,
    flags: SharedBytes,
    incoming: Incoming,
}

impl Inbox {
    fn new(geometry: Geometry, mode: Mode) -> Inbox {
        Inbox {
            memory: SharedBytes::heap(geometry.bytes()),
            copy: SharedBytes::heap(geometry.stride()),
            flags: SharedBytes::heap(geometry.flags_bytes()),
            incoming: Incoming::new(geometry, 1, EPOCH, mode),
        }
    }

    fn take(&mut self) -> Option<Message> {
        match self.incoming.poll(&self.memory, &self.copy) {
            Arrival::Nothing => None,
            Arrival::Malformed => panic!("{}", self.incoming.malformed()),
            Arrival::Frame => {
                let message = Message::of(&self.incoming, &self.memory, &self.copy);
                if let Some((bank, emptied)) = self.incoming.advance() {
                    self.flags.store(flag_at(bank), emptied, Ordering::Release);
                }
                Some(message)
            }
        }
    }
}

proptest! {
    /// Frames arrive unchanged and in order, and none is written over one that was not taken, for
    /// several rounds of all banks.
    #[test]
    fn frames_arrive_in_order(
        geometry in geometry(),
        mode in mode(),
        messages in proptest::collection::vec(message(72), 1..60),
        steps in proptest::collection::vec(any::<bool>(), 120),
    ) {
        let mut inbox = Inbox::new(geometry, mode);
        let mut outgoing = Outgoing::new(geometry, 1, EPOCH, mode);
        let (mut sent, mut taken) = (0, 0);
        // The steps, and then turns until everything has come.
        for is_send in steps.into_iter().chain([true, false].into_iter().cycle()) {
            if taken == messages.len() {
                break;
            }
            if is_send && sent < messages.len() {
                let under_way = (sent - taken) as u64;
                if outgoing.may_write(&inbox.flags) {
                    prop_assert!(under_way < geometry.set_frames(), "an untaken frame is overwritten");
                    let Message { header, .. } = &messages[sent];
                    let Ok(()) =
                        outgoing.write(&Direct(&inbox.memory), header, &messages[sent].parts());
                    sent += 1;
                } else {
                    let room = geometry.set_frames() - u64::from(geometry.frames);
                    prop_assert!(under_way > room, "a bank is empty");
                }
            } else {
                let message = inbox.take();
                prop_assert_eq!(message.is_some(), taken < sent);
                if let Some(message) = message {
                    prop_assert_eq!(&message, &messages[taken]);
                    taken += 1;
                }
            }
        }
        prop_assert!(inbox.take().is_none());
        // Flags that are written late are the same.
        for (bank, emptied) in inbox.incoming.emptied() {
            prop_assert_eq!(inbox.flags.load(flag_at(bank), Ordering::Relaxed), emptied);
        }
    }

    /// The words of one write come in any order: a frame is taken when all are there that belong to it.
    #[test]
    fn a_frame_is_taken_whole(
        geometry in geometry(),
        old in message(48),
        new in message(48),
        order in any::<u64>(),
    ) {
        let one = Geometry { banks: 1, frames: 1, ..geometry };
        let mut inbox = Inbox::new(one, Mode::Checked);
        let mut outgoing = Outgoing::new(one, 1, EPOCH, Mode::Checked);
        prop_assert!(outgoing.may_write(&inbox.flags));
        let Ok(()) = outgoing.write(&Direct(&inbox.memory), &old.header, &old.parts());
        prop_assert_eq!(inbox.take(), Some(old));
        prop_assert!(outgoing.may_write(&inbox.flags));
        let held = Held::default();
        let Ok(()) = outgoing.write(&held, &new.header, &new.parts());
        let mut words = held.0.into_inner();
        let key = |(at, _): &(usize, u64)| (*at as u64 + 1).wrapping_mul(order | 1) >> 32;
        words.sort_by_key(key);
        let mut seen = None;
        for (at, word) in words {
            // The word may be what was there before.
            let is_new = inbox.memory.load(at, Ordering::Relaxed) != word;
            if let Some(message) = &seen {
                prop_assert!(!is_new, "taken before word {} has come: {:?}", at, message);
            }
            inbox.memory.store(at, word, Ordering::Relaxed);
            seen = seen.or_else(|| inbox.take());
        }
        // After some copies in vain, polls skip the frame.
        for _ in 0..2048 {
            seen = seen.or_else(|| inbox.take());
        }
        prop_assert_eq!(seen, Some(new));
    }

    /// Any words at any time do no more harm than a frame of nonsense, and cost no more than one.
    #[test]
    fn any_bytes_are_survived(
        kind in 0..4_u8,
        writes in proptest::collection::vec(
            (any::<u8>(), proptest::collection::vec(any::<u64>(), 0..20)),
            0..10,
        ),
    ) {
        let mut data = vec![kind];
        for (place, words) in writes {
            data.extend([place, words.len() as u8]);
            data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        crate::fuzzing::jam_frame(&data);
    }
}

/// In mapped memory a payload begins with a line where the frame then takes no more lines, and nowhere else.
#[test]
fn a_payload_begins_with_a_line_if_no_more_lines_are_written() {
    let payload_at = |args, payload, attachment, mode| {
        crate::frame::Lengths { args, payload, attachment }.places(mode).0
    };
    let mapped = |args, payload, attachment| payload_at(args, payload, attachment, Mode::Mapped);
    assert_eq!([mapped(0, 16, 0), mapped(8, 8, 0), mapped(0, 4, 8)], [48, 56, 48], "one line");
    assert_eq!([mapped(0, 17, 0), mapped(0, 64, 0), mapped(16, 4096, 0)], [64; 3]);
    assert_eq!([mapped(0, 65, 0), mapped(0, 80, 0), mapped(0, 88, 0)], [48, 48, 64]);
    assert_eq!([mapped(24, 40, 0), mapped(24, 48, 0), mapped(24, 48, 8)], [72, 72, 72]);
    assert_eq!([mapped(24, 48, 16), mapped(24, 64, 0)], [128, 128]);
    assert_eq!([Mode::Checked, Mode::Streamed].map(|mode| payload_at(0, 64, 0, mode)), [48; 2]);
    let lens = || (0..200_u32).step_by(4);
    for (args, payload) in lens().flat_map(|args| lens().map(move |payload| (args, payload))) {
        let lengths = crate::frame::Lengths { args, payload, attachment: 5 };
        let lines = |mode| lengths.places(mode).2.div_ceil(crate::layout::LINE);
        assert_eq!(lines(Mode::Mapped), lines(Mode::Checked), "{lengths:?}");
    }
}

/// Stored word by word, a frame is not taken before its last word, whatever an earlier one had there; its
/// tag is that word, and the line of the header is written behind the rest.
#[test]
fn a_stored_frame_is_taken_behind_its_last_word() {
    for (kind, len) in [FrameKind::Fixed, FrameKind::Variable]
        .into_iter()
        .flat_map(|kind| [0, 5, 8, 11, 16, 17, 64].map(|len| (kind, len)))
    {
        let geometry =
            Geometry { banks: 1, frames: 1, body: 64, senders: 2, kind, may_sleep: false };
        let mut inbox = Inbox::new(geometry, Mode::Mapped);
        let mut outgoing = Outgoing::new(geometry, 1, EPOCH, Mode::Mapped);
        let header = FrameHeader::default();
        // The tag of the next frame, wherever a body can have it.
        let forged = crate::frame::tag(EPOCH, 1).to_ne_bytes().repeat(8);
        assert!(outgoing.may_write(&inbox.flags));
        let (args, payload) = forged.split_at(16);
        let parts = Parts { args, payload, ..Parts::default() };
        let Ok(()) = outgoing.write(&Direct(&inbox.memory), &header, &parts);
        assert!(inbox.take().is_some());
        assert!(outgoing.may_write(&inbox.flags));
        let held = Held::default();
        // Whole words, because this target holds no others.
        let bytes = vec![1; usize::next_multiple_of(len, 8)];
        let parts = Parts { payload: &bytes, ..Parts::default() };
        let Ok(()) = outgoing.write(&held, &header, &parts);
        let words = held.0.into_inner();
        let (last, others) = words.split_last().expect("words");
        assert_eq!(last.0, inbox.incoming.watched(), "the tag is last");
        let line = |(at, _): &(usize, u64)| at / crate::layout::LINE;
        let header_line = line(last);
        let begun = others.iter().position(|word| line(word) == header_line).expect("a header");
        assert!(others[begun..].iter().all(|word| line(word) == header_line), "in between");
        for (at, word) in others {
            inbox.memory.store(*at, *word, Ordering::Relaxed);
            assert_eq!(inbox.take(), None, "taken before its tag");
        }
        inbox.memory.store(last.0, last.1, Ordering::Release);
        assert_eq!(inbox.take().map(|message| message.parts[1].clone()), Some(bytes));
    }
}

/// A sender that looks ahead knows a bank to be free before it needs it, and never one that is not.
#[test]
fn flags_are_looked_at_ahead() {
    let kind = FrameKind::Fixed;
    let geometry = Geometry { banks: 2, frames: 3, body: 8, senders: 2, kind, may_sleep: false };
    let mut inbox = Inbox::new(geometry, Mode::Mapped);
    let mut outgoing = Outgoing::new(geometry, 1, EPOCH, Mode::Mapped);
    let send = |outgoing: &mut Outgoing, memory: &SharedBytes, flags: &SharedBytes| {
        let Ok(()) = outgoing.write(&Direct(memory), &FrameHeader::default(), &Parts::default());
        outgoing.look_ahead(flags);
    };
    assert!(!outgoing.has_room() && outgoing.may_write(&inbox.flags));
    for number in 0..6 {
        assert!(outgoing.has_room(), "frame {number}: both banks are free");
        send(&mut outgoing, &inbox.memory, &inbox.flags);
    }
    assert!(!outgoing.may_write(&inbox.flags), "none is");
    for _ in 0..3 {
        assert!(inbox.take().is_some());
    }
    assert!(outgoing.may_write(&inbox.flags), "the first is");
    for _ in 0..3 {
        send(&mut outgoing, &inbox.memory, &inbox.flags);
    }
    assert!(!outgoing.may_write(&inbox.flags), "the second is not");
    for _ in 0..3 {
        assert!(inbox.take().is_some());
    }
    assert!(outgoing.may_write(&inbox.flags));
}

/// The tag counts that is in the copy, with the checksum: a peer may write between the two looks.
#[test]
fn a_whole_frame_of_another_tag_is_not_taken() {
    for kind in [FrameKind::Fixed, FrameKind::Variable] {
        let geometry =
            Geometry { banks: 1, frames: 1, body: 64, senders: 2, kind, may_sleep: false };
        let mut inbox = Inbox::new(geometry, Mode::Checked);
        let mut outgoing = Outgoing::new(geometry, 1, EPOCH + 1, Mode::Checked);
        assert!(outgoing.may_write(&inbox.flags));
        let parts = Parts { args: &[1; 8], ..Parts::default() };
        outgoing.write(&Direct(&inbox.memory), &FrameHeader::default(), &parts).unwrap();
        assert!(!inbox.incoming.has_come(&inbox.memory));
        // As if it had come, and this frame since.
        let taken = inbox.incoming.take(&inbox.memory, &inbox.copy);
        assert_eq!(taken, Arrival::Nothing, "{kind:?}");
    }
}

/// The lengths count that are in the copy, with the checksum: a malicious peer may write others between the
/// look at them and the copy, with a checksum that is right where the first ones end.
#[test]
fn a_frame_whose_lengths_change_before_it_is_copied_is_not_taken() {
    let kind = FrameKind::Variable;
    let geometry = Geometry { banks: 1, frames: 1, body: 64, senders: 2, kind, may_sleep: false };
    let inbox = Inbox::new(geometry, Mode::Checked);
    let at = inbox.incoming.watched();
    // A frame with this many bytes of arguments, and the checksum of 7 words behind those.
    let write = |args: u64| {
        let words = [crate::frame::tag(EPOCH, 0), args << 32, 0, 0, 0, 0, 9];
        for (number, word) in words.into_iter().enumerate() {
            inbox.memory.store(at + number * 8, word, Ordering::Relaxed);
        }
        let sum = integrity::checksum(&inbox.memory, at / 8, words.len());
        inbox.memory.store(at + words.len() * 8, sum, Ordering::Relaxed);
    };
    write(8);
    let count = inbox.incoming.claimed(&inbox.memory).unwrap();
    assert_eq!(count, 7);
    assert!(inbox.incoming.copy_intact(&inbox.memory, &inbox.copy, count));
    for args in [0, 16, 64, 65] {
        write(args);
        let is_taken = inbox.incoming.copy_intact(&inbox.memory, &inbox.copy, count);
        assert!(!is_taken, "{args} bytes of arguments");
    }
    // As many words.
    write(1);
    assert!(inbox.incoming.copy_intact(&inbox.memory, &inbox.copy, count));
}

/// A sender that is woken too early is not woken again when its bank is empty.
#[test]
fn a_frame_has_room_as_soon_as_its_bank_was_emptied_and_not_before() {
    let kind = FrameKind::Variable;
    let geometry = Geometry { banks: 2, frames: 3, body: 64, senders: 2, kind, may_sleep: true };
    let mut incoming = Incoming::new(geometry, 1, EPOCH, Mode::Streamed);
    for taken in 0..20 {
        let emptied = taken / 3 * 3;
        for number in taken..emptied + 6 {
            assert!(incoming.has_room_for(number), "frame {number}, {taken} taken");
        }
        assert!(!incoming.has_room_for(emptied + 6), "{taken} taken");
        let _ = incoming.advance();
    }
}

/// Bytes that never become a frame cost a copy at few polls.
#[test]
fn a_wrong_checksum_is_looked_at_ever_less_often() {
    let geometry = Geometry {
        banks: 1,
        frames: 1,
        body: 64,
        senders: 2,
        kind: FrameKind::Fixed,
        may_sleep: false,
    };
    let mut inbox = Inbox::new(geometry, Mode::Checked);
    let at = inbox.incoming.watched();
    inbox.memory.store(at, crate::frame::tag(EPOCH, 0), Ordering::Relaxed);
    let mut copies = 0;
    for _ in 0..100_000 {
        inbox.copy.store(0, 0, Ordering::Relaxed);
        assert_eq!(inbox.take(), None);
        copies += usize::from(inbox.copy.load(0, Ordering::Relaxed) != 0);
    }
    assert!((16..200).contains(&copies), "{copies} copies");
}

#[test]
fn dimensions_are_checked_and_come_back() {
    let fine = Geometry {
        banks: 64,
        frames: 4096,
        body: 1 << 20,
        senders: 1024,
        kind: FrameKind::Variable,
        may_sleep: false,
    };
    assert_eq!(fine.checked(), Ok(fine));
    assert_eq!(Geometry::decode(&fine.encode(), fine.bytes()), Some(fine));
    assert_eq!(Geometry::decode(&fine.encode(), fine.bytes() - 1), None, "longer than its segment");
    for (wrong, text) in [
        (Geometry { banks: 0, ..fine }, "invalid number of banks 0: must be from 1 to 64"),
        (
            Geometry { frames: 4097, ..fine },
            "invalid number of frames of a bank 4097: must be from 1 to 4096",
        ),
        (
            Geometry { body: (1 << 20) + 1, ..fine },
            "invalid number of bytes of a frame 1048577: must be from 1 to 1048576",
        ),
        (Geometry { senders: 0, ..fine }, "invalid number of senders 0: must be from 1 to 1024"),
    ] {
        assert_eq!(wrong.checked().expect_err("out of range").to_string(), text);
        assert_eq!(Geometry::decode(&wrong.encode(), usize::MAX), None);
    }
    let rounded = Geometry { body: 57, ..fine }.checked().expect("dimensions");
    assert_eq!((rounded.body, rounded.stride()), (64, 128));
    let mut bytes = fine.encode();
    bytes[9] ^= 1;
    assert_eq!(Geometry::decode(&bytes, usize::MAX), None, "a wrong checksum");
    assert_eq!(Geometry::decode(&[0; 40], usize::MAX), None, "fresh memory");
}

#[test]
fn parts_fit_or_are_refused_with_their_length() {
    let geometry = Geometry {
        banks: 1,
        frames: 1,
        body: 64,
        senders: 1,
        kind: FrameKind::Fixed,
        may_sleep: false,
    };
    let parts = |args, payload| Parts { args, payload, attachment: &[] };
    assert!(parts(&[1; 9], &[2; 48]).lengths(&geometry).is_ok(), "16 and 48");
    assert_eq!(parts(&[1; 9], &[2; 49]).lengths(&geometry), Err(72));
}

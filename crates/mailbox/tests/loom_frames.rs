//! Every interleaving of a sender that stores frames into mapped memory, or whose frames a device stores there
//! in any order, with their receiver: no frame is torn, lost or overwritten before it was taken, and neither
//! side loses a wake. Each side writes to the other's memory through a [`Window`], as it does in a rack. Run
//! by `cargo xtask loom`.
#![cfg(loom)]

use mailbox::testing::{
    Arrival, FrameKind, Geometry, Incoming, Mode, Outgoing, Target, announce, flag_at, must_wake,
};
use mailbox::{FrameHeader, Parts};
use primitive::SharedBytes;
use primitive::sync::{Ordering, spin_hint};
use transport_api::{HostId, OpError, RegionKey, Rights, Window};

const EPOCH: u32 = 3;

fn check(bound: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(model);
}

/// With so many banks of so many frames.
fn geometry(kind: FrameKind, (banks, frames): (u32, u32)) -> Geometry {
    Geometry { banks, frames, body: 8 * WORDS as u32, senders: 1, kind, may_sleep: true }
}

/// The memory of one side, mapped by the other: that of a mailbox by its sender, the flags of a sender by
/// the receiver.
struct To(Window);

impl To {
    fn new(memory: &SharedBytes) -> To {
        let live = SharedBytes::heap(8);
        live.store(0, 1, Ordering::Relaxed);
        To(Window::new((0, HostId(0)), (RegionKey(1), Rights::ALL, 0), memory.clone(), live))
    }
}

impl Target for To {
    type Error = OpError;
    fn write(&self, at: usize, bytes: &[u8], next: usize) -> Result<(), OpError> {
        self.0.write_loose(at, bytes, next)
    }
    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), OpError> {
        self.0.store_words_down(at, words)
    }
}

/// Words of arguments: two of them are in the line of the header, the third is written before.
const WORDS: usize = 3;

/// Sends a frame with this number, once its bank is empty.
fn send(outgoing: &mut Outgoing, to: &To, flags: &SharedBytes, number: u64) {
    while !outgoing.may_write(flags) {
        spin_hint();
    }
    let header = FrameHeader { reply: number, ..FrameHeader::default() };
    let args = (number + 100).to_ne_bytes().repeat(WORDS);
    let parts = Parts { args: &args, ..Parts::default() };
    outgoing.write(to, &header, &parts).unwrap();
    outgoing.look_ahead(flags);
}

/// Takes the next frame, if it has come, and sets the flag of its bank if that is empty then; its number.
/// `(memory, frame)`: the mailbox's, and where a frame is read: in a copy if it has a checksum.
fn take(
    incoming: &mut Incoming,
    (memory, frame): (&SharedBytes, &SharedBytes),
    flags: &To,
) -> Option<u64> {
    match incoming.poll(memory, frame) {
        Arrival::Nothing => None,
        Arrival::Malformed => panic!("{}", incoming.malformed()),
        Arrival::Frame => {
            let words = [0, WORDS - 1].map(|index| incoming.arrived().args_word(frame, index));
            let [(number, first), (_, last)] = words;
            assert_eq!([first, last], [number + 100; 2], "torn");
            if let Some((bank, emptied)) = incoming.advance() {
                flags.0.signal(flag_at(bank), emptied).unwrap();
            }
            Some(number)
        }
    }
}

fn frames_are_whole(mode: Mode, kind: FrameKind, size: (u32, u32), count: u64, bound: usize) {
    check(bound, move || {
        let geometry = geometry(kind, size);
        let memory = SharedBytes::heap(geometry.bytes());
        let flags = SharedBytes::heap(geometry.flags_bytes());
        let frame = match mode {
            Mode::Checked => SharedBytes::heap(geometry.stride()),
            _ => memory.clone(),
        };
        let sender = {
            let (to, flags) = (To::new(&memory), flags.clone());
            loom::thread::spawn(move || {
                let mut outgoing = Outgoing::new(geometry, 0, EPOCH, mode);
                (0..count).for_each(|number| send(&mut outgoing, &to, &flags, number));
            })
        };
        let flags = To::new(&flags);
        let mut incoming = Incoming::new(geometry, 0, EPOCH, mode);
        for expected in 0..count {
            let number = loop {
                if let Some(number) = take(&mut incoming, (&memory, &frame), &flags) {
                    break number;
                }
                spin_hint();
            };
            assert_eq!(number, expected, "out of order");
        }
        sender.join().unwrap();
        assert_eq!(take(&mut incoming, (&memory, &frame), &flags), None);
    });
}

#[test]
fn fixed_frames_are_whole_and_in_order() {
    frames_are_whole(Mode::Mapped, FrameKind::Fixed, (1, 1), 2, 5);
}

#[test]
fn variable_frames_are_whole_and_in_order() {
    frames_are_whole(Mode::Mapped, FrameKind::Variable, (1, 1), 2, 5);
}

#[test]
fn a_bank_is_not_written_again_before_it_is_empty() {
    frames_are_whole(Mode::Mapped, FrameKind::Variable, (2, 1), 3, 3);
}

/// The fifth frame is in the place of the first, whose bank has another one that must be taken, too: the
/// sixth is in its place.
#[test]
fn a_bank_of_two_frames_is_not_written_again_before_both_were_taken() {
    frames_are_whole(Mode::Mapped, FrameKind::Variable, (2, 2), 6, 3);
}

/// A frame with a checksum, whose words come in any order, is read from the copy that was checked.
#[test]
fn checked_frames_are_whole() {
    frames_are_whole(Mode::Checked, FrameKind::Variable, (1, 1), 2, 1);
}

/// A receiver that goes to sleep sees the frame, or its sender sees that it sleeps.
#[test]
fn no_wake_of_a_receiver_is_lost() {
    const ASLEEP: usize = 64;
    check(4, || {
        let geometry = geometry(FrameKind::Fixed, (1, 1));
        let memory = SharedBytes::heap(geometry.bytes());
        let flags = SharedBytes::heap(geometry.flags_bytes());
        let sender = {
            let (to, flags) = (To::new(&memory), flags.clone());
            loom::thread::spawn(move || {
                let mut outgoing = Outgoing::new(geometry, 0, EPOCH, Mode::Mapped);
                send(&mut outgoing, &to, &flags, 0);
                must_wake(|| to.0.load_word(ASLEEP).ok_or(())).unwrap()
            })
        };
        let flags = To::new(&flags);
        let mut incoming = Incoming::new(geometry, 0, EPOCH, Mode::Mapped);
        announce(&memory, ASLEEP);
        let is_taken = take(&mut incoming, (&memory, &memory), &flags).is_some();
        let is_woken = sender.join().unwrap();
        assert!(is_taken || is_woken, "the receiver sleeps, and a frame waits");
    });
}

/// A sender that goes to sleep sees that its bank is empty, or the receiver sees that it sleeps: at once, or
/// once it finds no more frames.
#[test]
fn no_wake_of_a_sender_is_lost() {
    const WAITING: usize = 0;
    check(4, || {
        let geometry = geometry(FrameKind::Fixed, (1, 1));
        let memory = SharedBytes::heap(geometry.bytes());
        let flags = SharedBytes::heap(geometry.flags_bytes());
        let mut outgoing = Outgoing::new(geometry, 0, EPOCH, Mode::Mapped);
        send(&mut outgoing, &To::new(&memory), &flags, 0);
        assert!(!outgoing.may_write(&flags), "the bank is full");
        let receiver = {
            let to = To::new(&flags);
            loom::thread::spawn(move || {
                let mut incoming = Incoming::new(geometry, 0, EPOCH, Mode::Mapped);
                assert_eq!(take(&mut incoming, (&memory, &memory), &to), Some(0));
                assert_eq!(take(&mut incoming, (&memory, &memory), &to), None);
                must_wake(|| to.0.load_word(WAITING).ok_or(())).unwrap()
            })
        };
        announce(&flags, WAITING);
        let is_empty = outgoing.may_write(&flags);
        let is_woken = receiver.join().unwrap();
        assert!(is_empty || is_woken, "the sender sleeps, and its bank is empty");
    });
}

//! Every interleaving of a sender that stores frames into mapped memory with their receiver: no frame is
//! torn, lost or overwritten before it was taken, and no wake is lost. Run by `cargo xtask loom`.
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

fn geometry(kind: FrameKind, banks: u32) -> Geometry {
    Geometry { banks, frames: 1, body: 8 * WORDS as u32, senders: 1, kind, may_sleep: true }
}

/// The memory of a mailbox, mapped by its sender.
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
    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), OpError> {
        self.0.write_loose(at, bytes)
    }
    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), OpError> {
        self.0.store_words_down(at, words)
    }
}

/// Words of a payload: two of them are in the line of the header, the third is written before.
const WORDS: usize = 3;

/// Sends a frame with this number, once its bank is empty.
fn send(outgoing: &mut Outgoing, to: &To, flags: &SharedBytes, number: u64) {
    while !outgoing.may_write(flags) {
        spin_hint();
    }
    let header = FrameHeader { reply: number, ..FrameHeader::default() };
    let payload = (number + 100).to_ne_bytes().repeat(WORDS);
    let parts = Parts { payload: &payload, ..Parts::default() };
    outgoing.write(to, &header, &parts).unwrap();
    outgoing.look_ahead(flags);
}

/// Takes the next frame, if it has come, and sets the flag of its bank; its number.
fn take(incoming: &mut Incoming, memory: &SharedBytes, flags: &SharedBytes) -> Option<u64> {
    // Frames on mapped memory are not copied.
    let copy = memory.clone();
    match incoming.poll(memory, &copy) {
        Arrival::Nothing => None,
        Arrival::Malformed => panic!("{}", incoming.malformed()),
        Arrival::Frame => {
            let words = [0, WORDS - 1].map(|index| incoming.arrived().payload_word(memory, index));
            let [(number, first), (_, last)] = words;
            assert_eq!([first, last], [number + 100; 2], "torn");
            let (bank, emptied) = incoming.advance().expect("a bank of one frame");
            flags.store(flag_at(bank), emptied, Ordering::Release);
            Some(number)
        }
    }
}

fn frames_are_whole(kind: FrameKind, banks: u32, count: u64, bound: usize) {
    check(bound, move || {
        let geometry = geometry(kind, banks);
        let memory = SharedBytes::heap(geometry.bytes());
        let flags = SharedBytes::heap(geometry.flags_bytes());
        let sender = {
            let (to, flags) = (To::new(&memory), flags.clone());
            loom::thread::spawn(move || {
                let mut outgoing = Outgoing::new(geometry, 0, EPOCH, Mode::Mapped);
                (0..count).for_each(|number| send(&mut outgoing, &to, &flags, number));
            })
        };
        let mut incoming = Incoming::new(geometry, 0, EPOCH, Mode::Mapped);
        for expected in 0..count {
            let number = loop {
                if let Some(number) = take(&mut incoming, &memory, &flags) {
                    break number;
                }
                spin_hint();
            };
            assert_eq!(number, expected, "out of order");
        }
        sender.join().unwrap();
        assert_eq!(take(&mut incoming, &memory, &flags), None);
    });
}

#[test]
fn fixed_frames_are_whole_and_in_order() {
    frames_are_whole(FrameKind::Fixed, 1, 2, 5);
}

#[test]
fn variable_frames_are_whole_and_in_order() {
    frames_are_whole(FrameKind::Variable, 1, 2, 5);
}

#[test]
fn a_bank_is_not_written_again_before_it_is_empty() {
    frames_are_whole(FrameKind::Variable, 2, 3, 3);
}

/// A receiver that goes to sleep sees the frame, or its sender sees that it sleeps.
#[test]
fn no_wake_is_lost() {
    const ASLEEP: usize = 64;
    check(4, || {
        let geometry = geometry(FrameKind::Fixed, 1);
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
        let mut incoming = Incoming::new(geometry, 0, EPOCH, Mode::Mapped);
        announce(&memory, ASLEEP);
        let is_taken = take(&mut incoming, &memory, &flags).is_some();
        let is_woken = sender.join().unwrap();
        assert!(is_taken || is_woken, "the receiver sleeps, and a frame waits");
    });
}

//! Prints what an empty frame costs beside a bare write of the same line: between two hosts that share
//! memory, half a round trip of each, in turn:
//! `cargo run --release -p gossamer-mailbox --example empty_frame`. `ROUNDS=NUMBER` in the environment
//! measures so often.
//!
//! The bare write stores the eight words of a line in order, as a frame does, and its receiver polls the
//! last of them; the lines are those of a ring of as many frames.

use std::thread;
use std::time::{Duration, Instant};

use gossamer_segment::{RemoteSegment, Segment, Segments};
use mailbox::{FrameHeader, Mailbox, Parts, Sender};
use primitive::sync::{Ordering, spin_hint};
use transport_shm::ShmTransport;

const CALLS: u64 = 20_000;
const BANKS: u32 = 4;
const FRAMES: u32 = 8;
const LINES: u64 = (BANKS * FRAMES) as u64;
const LINE: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(10);

/// One host: what it receives by, and what it sends by.
struct Side {
    segments: Segments,
    lines: Segment,
    there: RemoteSegment,
    boxes: [(Mailbox, Sender); ARMS - 1],
    /// Lines that were written and read.
    written: u64,
    read: u64,
}

const ARMS: usize = 4;
const NAMES: [&str; ARMS] = [
    "bare write of a line",
    "empty frame, fixed, never sleeps",
    "empty frame, variable, never sleeps",
    "empty frame, fixed, may sleep",
];

impl Side {
    fn new(segments: &Segments, own: u32) -> Side {
        let bytes = LINES as usize * LINE;
        let lines = segments.builder(&format!("lines-{own}")).len(bytes).export();
        let other = 1 - own;
        let named = |arm: usize, host| format!("arm-{arm}-{host}");
        let export = |arm: usize| {
            let builder = Mailbox::builder(&named(arm, own)).banks(BANKS).frames(FRAMES);
            let builder = builder.frame_bytes(8).senders(1);
            let builder = if arm == 2 { builder } else { builder.fixed() };
            let builder = if arm == 3 { builder } else { builder.never_sleeps() };
            builder.export(segments).expect("a mailbox")
        };
        let boxes = [1, 2, 3].map(export);
        let open = segments.options().timeout(TIMEOUT);
        let there = open.open(&format!("lines-{other}")).expect("the other's lines");
        let mut arm = 0;
        let boxes = boxes.map(|inbox| {
            arm += 1;
            let options = Sender::options(segments).timeout(TIMEOUT);
            (inbox, options.open(&named(arm, other)).expect("the other's mailbox"))
        });
        let lines = lines.expect("lines");
        Side { segments: segments.clone(), lines, there, boxes, written: 0, read: 0 }
    }

    #[inline(always)]
    fn send(&mut self, arm: usize, number: u64) {
        if arm == 0 {
            let at = (self.written % LINES) as usize * LINE;
            self.written += 1;
            let words = [number, 0, 0, 0, 0, 0, 0, self.written];
            return self.there.signal_words(at, &words).expect("memory of the other");
        }
        let header = FrameHeader { reply: number, ..FrameHeader::default() };
        self.boxes[arm - 1].1.send(&header, Parts::default()).expect("a frame");
    }

    #[inline(always)]
    fn receive(&mut self, arm: usize) -> u64 {
        if arm == 0 {
            let at = (self.read % LINES) as usize * LINE;
            self.read += 1;
            while self.lines.memory().load(at + LINE - 8, Ordering::Acquire) != self.read {
                spin_hint();
            }
            return self.lines.memory().load(at, Ordering::Relaxed);
        }
        self.boxes[arm - 1].0.next().expect("a frame").header().reply
    }

    /// Nanoseconds of half a round trip.
    #[inline(never)]
    fn round<const ARM: usize>(&mut self, is_first: bool) -> f64 {
        let start = Instant::now();
        for number in 0..CALLS {
            if is_first {
                self.send(ARM, number);
            }
            assert_eq!(self.receive(ARM), number);
            if !is_first {
                self.send(ARM, number);
            }
        }
        start.elapsed().as_nanos() as f64 / CALLS as f64 / 2.0
    }

    fn rounds(&mut self, rounds: usize, is_first: bool) -> [Vec<f64>; ARMS] {
        let mut times = [const { Vec::new() }; ARMS];
        for _ in 0..rounds {
            times[0].push(self.round::<0>(is_first));
            times[1].push(self.round::<1>(is_first));
            times[2].push(self.round::<2>(is_first));
            times[3].push(self.round::<3>(is_first));
            self.segments.poll();
        }
        times
    }
}

fn main() {
    let rounds = std::env::var("ROUNDS").map_or(31, |rounds| rounds.parse().expect("a number"));
    let rack = ShmTransport::in_process(2, 1).expect("a rack");
    let mut times = thread::scope(|scope| {
        let hosts = [0, 1].map(|own| {
            let segments = Segments::new(rack[own as usize].clone());
            scope.spawn(move || {
                let attached = segments.attach(0).expect("a thread");
                let times = Side::new(&segments, own).rounds(rounds, own == 0);
                drop(attached);
                times
            })
        });
        hosts.map(|host| host.join().expect("no panic")).into_iter().next().expect("two")
    });
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let bare = median(&mut times[0]);
    for (name, times) in NAMES.iter().zip(&mut times) {
        let time = median(times);
        println!("{time:8.1} ns (least {:7.1}) {:.3}  {name}", times[0], time / bare);
    }
}

//! Prints what a frame that runs nothing costs beside the transport's own write of as many bytes,
//! between two hosts, in turn: `cargo run --release -p gossamer-mailbox --example empty_frame`.
//!
//! | In the environment | |
//! |---|---|
//! | `ROUNDS=NUMBER` | rounds; the default is 31 |
//! | `BYTES=NUMBER` | frames of this size only |
//! | `OVER=tcp` | over connections instead of shared memory |
//!
//! | Arm | Sender | Receiver |
//! |---|---|---|
//! | bare line, over shared memory | stores the eight words of a line, the last one with release | looks at the last word, with a `PAUSE` between two looks |
//! | ordered write, over connections | writes as many bytes as a frame has, the first word last | looks at the first word, with a `PAUSE` between two looks |
//! | write | `RemoteSegment::write` of the bytes of a frame from a buffer, whose last word is a number | looks at the last word, without or with a `PAUSE` |
//! | fixed, variable | `Sender::send` of a payload that makes a frame of `BYTES` | `Mailbox::next`, reads the header, drops the frame |
//!
//! All go round as many places. Latency is half a round trip. In a stream, one side sends and the
//! other takes; writes have the flow control of a mailbox, done by hand: a word back for each bank.
//! Over shared memory, a round in which a bare line takes less than 70 ns counts as near, any other as
//! far. A ratio is that of two arms of one round: to each of the first three arms.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gossamer_segment::{RemoteSegment, Segment, Segments};
use mailbox::{FRAME_OVERHEAD, FrameHeader, Mailbox, Parts, Sender};
use primitive::sync::{Ordering, spin_hint};
use transport_api::Transport;
use transport_shm::ShmTransport;
use transport_tcp::TcpTransport;

const BANKS: u32 = 4;
const FRAMES: u32 = 8;
const PLACES: u64 = (BANKS * FRAMES) as u64;
const LINE: usize = 64;
const SIZES: [usize; 8] = [64, 128, 256, 512, 1 << 10, 4 << 10, 16 << 10, 32 << 10];
const TIMEOUT: Duration = Duration::from_secs(10);
const NEAR: f64 = 70.0;

const FIRST: usize = 0;
const WRITE: usize = 1;
const WRITE_PAUSE: usize = 2;
const BOXES: usize = 3;
const ARMS: usize = 7;
const NAMES: [&str; ARMS] = [
    "bare line, or ordered write",
    "write, looked for without PAUSE",
    "write, looked for with PAUSE",
    "fixed, never sleeps",
    "variable, never sleeps",
    "fixed, may sleep",
    "variable, may sleep",
];

/// Bytes that begin at a cache line.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(len: usize) -> Buffer {
        let mut bytes = vec![0; len + LINE];
        let start = bytes.as_ptr().align_offset(LINE);
        bytes.truncate(start + len);
        Buffer { bytes, start }
    }

    #[inline(always)]
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

/// Where one of the writes goes round the places.
#[derive(Default)]
struct Ring {
    count: u64,
    at: usize,
}

impl Ring {
    /// The next number, from 1 on, and its place.
    #[inline(always)]
    fn next(&mut self, bytes: usize) -> (u64, usize) {
        let at = self.at;
        self.count += 1;
        self.at = if at + bytes == PLACES as usize * bytes { 0 } else { at + bytes };
        (self.count, at)
    }
}

/// One host: what it receives by, and what it sends by.
struct Side {
    segments: Segments,
    is_first: bool,
    is_mapped: bool,
    bytes: usize,
    /// Calls of a round of latencies, and of a stream.
    calls: (u64, u64),
    /// The places, and behind them a line with the number of places that the other has taken.
    places: Segment,
    there: RemoteSegment,
    boxes: [(Mailbox, Sender); ARMS - BOXES],
    buffer: Buffer,
    payload: Buffer,
    written: Ring,
    read: Ring,
    /// Writes of streams before this one.
    streamed: u64,
}

impl Side {
    fn new(segments: &Segments, own: u32, bytes: usize) -> Side {
        let len = PLACES as usize * bytes + LINE;
        let places = segments.builder(&format!("places-{bytes}-{own}")).len(len).export();
        let other = 1 - own;
        let named = |arm: usize, host| format!("arm-{bytes}-{arm}-{host}");
        let arms: [usize; ARMS - BOXES] = std::array::from_fn(|number| number + BOXES);
        let inboxes = arms.map(|arm| {
            let builder = Mailbox::builder(&named(arm, own)).banks(BANKS).frames(FRAMES);
            let builder = builder.frame_bytes((bytes - FRAME_OVERHEAD).max(8)).senders(1);
            let is_fixed = NAMES[arm].starts_with("fixed");
            let builder = if is_fixed { builder.fixed() } else { builder.variable() };
            let sleeps = NAMES[arm].ends_with("may sleep");
            let builder = if sleeps { builder } else { builder.never_sleeps() };
            (arm, builder.export(segments).expect("a mailbox"))
        });
        let open = segments.options().timeout(TIMEOUT);
        let there = open.open(&format!("places-{bytes}-{other}")).expect("the other's places");
        let boxes = inboxes.map(|(arm, inbox)| {
            let options = Sender::options(segments).timeout(TIMEOUT);
            (inbox, options.open(&named(arm, other)).expect("the other's mailbox"))
        });
        let is_mapped = there.is_mapped();
        Side {
            segments: segments.clone(),
            is_first: own == 0,
            is_mapped,
            bytes,
            calls: if is_mapped { (2_000, 4_000) } else { (100, 1_000) },
            places: places.expect("places"),
            there,
            boxes,
            buffer: Buffer::new(bytes),
            payload: Buffer::new((bytes - LINE).max(8)),
            written: Ring::default(),
            read: Ring::default(),
            streamed: 0,
        }
    }

    #[inline(always)]
    fn send<const ARM: usize>(&mut self, number: u64) {
        if ARM < BOXES {
            let (count, at) = self.written.next(self.bytes);
            if ARM == FIRST && self.is_mapped {
                let words = [number, 0, 0, 0, 0, 0, 0, count];
                let line = at + self.bytes - LINE;
                return self.there.signal_words(line, &words).expect("memory of the other");
            }
            let bytes = self.buffer.bytes();
            if ARM == FIRST {
                let ordered = self.there.write_tagged(at, count, &[&bytes[8..]], false);
                return ordered.expect("memory of the other");
            }
            *bytes.last_chunk_mut().expect("a word") = count.to_ne_bytes();
            return self.there.write(at, bytes).expect("memory of the other");
        }
        let header = FrameHeader { reply: number, ..FrameHeader::default() };
        let payload = self.payload.bytes();
        let parts = Parts { payload, ..Parts::default() };
        self.boxes[ARM - BOXES].1.send(&header, parts).expect("a frame");
    }

    #[inline(always)]
    fn receive<const ARM: usize>(&mut self) {
        if ARM >= BOXES {
            let frame = self.boxes[ARM - BOXES].0.next().expect("a frame");
            std::hint::black_box(frame.header().reply);
            return;
        }
        let (count, at) = self.read.next(self.bytes);
        let is_ordered = ARM == FIRST && !self.is_mapped;
        let word = if is_ordered { at } else { at + self.bytes - 8 };
        while self.places.memory().load(word, Ordering::Acquire) != count {
            if !self.is_mapped {
                self.segments.poll();
            }
            if ARM != WRITE {
                spin_hint();
            }
        }
    }

    /// Nanoseconds of half a round trip.
    #[inline(never)]
    fn round_trips<const ARM: usize>(&mut self) -> f64 {
        let start = Instant::now();
        for number in 0..self.calls.0 {
            if self.is_first {
                self.send::<ARM>(number);
            }
            self.receive::<ARM>();
            if !self.is_first {
                self.send::<ARM>(number);
            }
        }
        start.elapsed().as_nanos() as f64 / self.calls.0 as f64 / 2.0
    }

    /// Nanoseconds of a frame or write of a stream, until the last one was taken.
    #[inline(never)]
    fn stream<const ARM: usize>(&mut self) -> f64 {
        let (start, taken_at) = (Instant::now(), PLACES as usize * self.bytes);
        for number in 0..self.calls.1 {
            if self.is_first {
                if ARM < BOXES && number.is_multiple_of(FRAMES.into()) {
                    let taken = self.streamed + (number + u64::from(FRAMES)).saturating_sub(PLACES);
                    while self.places.memory().load(taken_at, Ordering::Acquire) < taken {
                        if !self.is_mapped {
                            self.segments.poll();
                        }
                    }
                }
                self.send::<ARM>(number);
            } else {
                self.receive::<ARM>();
                if ARM < BOXES && (number + 1).is_multiple_of(FRAMES.into()) {
                    let taken = self.streamed + number + 1;
                    self.there.signal(taken_at, taken).expect("memory of the other");
                }
            }
        }
        // The answer.
        if self.is_first {
            self.receive::<ARM>();
        } else {
            self.send::<ARM>(0);
        }
        if ARM < BOXES {
            self.streamed += self.calls.1;
        }
        start.elapsed().as_nanos() as f64 / self.calls.1 as f64
    }

    fn round(&mut self) -> [[f64; ARMS]; 2] {
        let trips = [
            self.round_trips::<FIRST>(),
            self.round_trips::<WRITE>(),
            self.round_trips::<WRITE_PAUSE>(),
            self.round_trips::<3>(),
            self.round_trips::<4>(),
            self.round_trips::<5>(),
            self.round_trips::<6>(),
        ];
        let streams = [
            self.stream::<FIRST>(),
            self.stream::<WRITE>(),
            self.stream::<WRITE_PAUSE>(),
            self.stream::<3>(),
            self.stream::<4>(),
            self.stream::<5>(),
            self.stream::<6>(),
        ];
        self.segments.poll();
        [trips, streams]
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// What all rounds have measured: of one kind, at one distance of the processors.
fn print(what: &str, bytes: usize, rounds: &[[f64; ARMS]]) {
    println!("{what} of {bytes} bytes, {} rounds", rounds.len());
    for (arm, name) in NAMES.iter().enumerate() {
        let time = median(rounds.iter().map(|times| times[arm]).collect());
        let to = |other: usize| median(rounds.iter().map(|it| it[arm] / it[other]).collect());
        let ratios = [FIRST, WRITE, WRITE_PAUSE].map(|other| format!("{:7.3}", to(other)));
        println!("{time:10.1} ns {}  {name}", ratios.join(" "));
    }
}

fn rack(over_tcp: bool) -> Vec<Arc<dyn Transport>> {
    let tcp = || TcpTransport::in_process(2, 1, |_| ()).expect("a rack over TCP");
    let shm = || ShmTransport::in_process(2, 1).expect("a rack");
    match over_tcp {
        true => tcp().into_iter().map(|host| host as Arc<dyn Transport>).collect(),
        false => shm().into_iter().map(|host| host as Arc<dyn Transport>).collect(),
    }
}

fn main() {
    let rounds = number("ROUNDS").unwrap_or(31);
    let sizes: Vec<usize> = number("BYTES").map_or(SIZES.into(), |bytes| vec![bytes]);
    let over_tcp = std::env::var("OVER").is_ok_and(|over| over == "tcp");
    println!("ratios: to each of the first three");
    for bytes in sizes {
        let rack = rack(over_tcp);
        let all = thread::scope(|scope| {
            let hosts = [0, 1].map(|own| {
                let segments = Segments::new(rack[own as usize].clone());
                scope.spawn(move || {
                    let attached = segments.attach(0).expect("a thread");
                    let mut side = Side::new(&segments, own, bytes);
                    let all: Vec<_> = (0..rounds).map(|_| side.round()).collect();
                    drop(side);
                    drop(attached);
                    all
                })
            });
            hosts.map(|host| host.join().expect("no panic")).into_iter().next().expect("two")
        });
        for (kind, what) in ["latency", "stream"].into_iter().enumerate() {
            for (place, is_near) in [("near", true), ("far", false)] {
                let is_here = |round: &&[[f64; ARMS]; 2]| (round[0][FIRST] < NEAR) == is_near;
                let here: Vec<_> = all.iter().filter(is_here).map(|round| round[kind]).collect();
                if here.len() >= 7 {
                    let place = if over_tcp { "over TCP" } else { place };
                    print(&format!("{what}, {place},"), bytes, &here);
                }
            }
        }
    }
}

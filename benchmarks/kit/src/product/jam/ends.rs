//! How two hosts send each other messages: [`measure`] on host 0, [`serve`] on host 1.
//!
//! ```text
//!   host 0                                  host 1
//!   send -- frame, or write --------------> take; runs it if it is a jam
//!   take; runs it <------ the same again -- send           (there and back)
//! ```
//! In a stream host 1 does not answer; host 0 waits at the end until everything has been taken.

use std::fmt::Display;
use std::time::{Duration, Instant};

use ::mailbox::{FrameHeader, Mailbox, Parts, Sender};
use gossamer::jam::mailbox::{JamSender, Outcome, ReactiveMailbox};
use gossamer::jam::{Mode, Sendable};
use jam_tests::Table;
use jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use jam_tests::jams::mixed::MIXED;
use jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use jam_tests::jams::slot::SLOT;
use primitive::sync::Ordering::Acquire;
use segment::{HostId, MAX_OPERATION};

use super::frames::{BANKS, FRAMES, FramePlan, Message, Shape, Waiting};
use super::{Function, KEYS, TABLE};
use crate::measure::watch::{WaitMode, cpu_of_process};
use crate::product::segment::board::{Board, DATA, HostError, PID, STOP, TIMEOUT};
use crate::product::segment::importer::{half, median_ns, watched};
use crate::product::segment::plan::{Figure, Statistic};

/// The word that says how many messages of a stream were taken, where no report does: in the segment of
/// the host that sends them.
const TAKEN: usize = DATA;
/// Where writes go, in a segment of [`Board`]: places of as many bytes, in turn.
const RING: usize = DATA + 256;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Frames of a mailbox.
const PLACES: u64 = (BANKS * FRAMES) as u64;
/// Bytes of a frame besides the payload: arguments, code.
const BESIDES: usize = 1024;
/// Looks that find nothing between two polls of the lanes, where memory is mapped, as mailboxes have it.
const LANES_EVERY: u32 = 32;
/// Looks that find nothing after which a host reads the clock.
const LOOKS: u32 = 1 << 16;
/// How long a host that may sleep waits before it looks whether it is over.
const NAP: Duration = Duration::from_millis(50);
/// The pause between two round trips of a paced plan.
const PAUSE: Duration = Duration::from_millis(1);

/// One host's end of both ways.
trait End: Sized {
    fn new(board: &Board, plan: FramePlan) -> Result<Self, HostError>;
    /// Sends a message; waits for room.
    fn send(&mut self, board: &Board) -> Result<(), HostError>;
    /// Takes a message, if one has come.
    fn take(&mut self, board: &Board) -> Result<bool, HostError>;
    /// Takes a message, and waits for it for a while; may sleep.
    fn wait(&mut self, board: &Board) -> Result<bool, HostError>;
    /// Waits until the other host has taken all that was sent.
    fn flush(&mut self, board: &Board) -> Result<(), HostError>;
    /// Tells the other host what was taken, if it is to know and does not yet.
    fn tell(&mut self, board: &Board) -> Result<(), HostError>;
}

fn failed(error: impl Display) -> HostError {
    HostError::other(error.to_string())
}

/// What host 0 does.
pub(in crate::product) fn measure(
    board: &Board,
    plan: FramePlan,
    statistic: Statistic,
    time: Duration,
) -> Result<Figure, HostError> {
    match plan.message {
        Message::Write => measure_by::<Writes>(board, plan, statistic, time),
        Message::Empty => measure_by::<Frames>(board, plan, statistic, time),
        Message::Jam(..) => measure_by::<Jams>(board, plan, statistic, time),
    }
}

/// What host 1 does, until host 0 stops it.
pub(in crate::product) fn serve(board: &Board, plan: FramePlan) -> Result<(), HostError> {
    match plan.message {
        Message::Write => serve_by::<Writes>(board, plan),
        Message::Empty => serve_by::<Frames>(board, plan),
        Message::Jam(..) => serve_by::<Jams>(board, plan),
    }
}

fn measure_by<E: End>(
    board: &Board,
    plan: FramePlan,
    statistic: Statistic,
    time: Duration,
) -> Result<Figure, HostError> {
    let mut end = E::new(board, plan)?;
    let mut pid = [0; 8];
    board.remote.read(PID, &mut pid)?;
    let pid = u32::try_from(u64::from_ne_bytes(pid)).unwrap_or(0);
    // The first jam of a process takes long, and what comes after the samples is not part of them.
    let trip = |end: &mut E, waiting| {
        end.send(board)?;
        match receive(end, board, waiting)? {
            true => Ok(()),
            false => Err(HostError::other("stopped by itself")),
        }
    };
    let burst = |end: &mut E, n| {
        (0..n).try_for_each(|_| end.send(board))?;
        end.flush(board)
    };
    match plan.shape {
        Shape::Stream => burst(&mut end, 1)?,
        Shape::PingPong | Shape::Paced => trip(&mut end, Waiting::Spins)?,
    }
    let (start, before) = (Instant::now(), cpu_of_process(pid)?);
    let figure = match plan.shape {
        Shape::Stream => {
            // A sender whose banks are full may sleep.
            watched(WaitMode::Blocks, Statistic::Mean, time, |n| burst(&mut end, n))
        }
        Shape::PingPong => {
            let wait_mode = match plan.waiting {
                Waiting::Spins => WaitMode::Polls,
                Waiting::Waits => WaitMode::Blocks,
            };
            half(watched(wait_mode, statistic, time, |n| {
                (0..n).try_for_each(|_| trip(&mut end, plan.waiting))
            }))
        }
        Shape::Paced => {
            let mut took = Vec::new();
            while start.elapsed() < time {
                std::thread::sleep(PAUSE);
                let began = Instant::now();
                trip(&mut end, Waiting::Spins)?;
                took.push(began.elapsed());
            }
            half(Ok(Figure::of(median_ns(&mut took), 0.0)))
        }
    }?;
    let used = cpu_of_process(pid)?.saturating_sub(before);
    let owner_cpu = 100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64();
    Ok(Figure { owner_cpu, ..figure })
}

fn serve_by<E: End>(board: &Board, plan: FramePlan) -> Result<(), HostError> {
    let mut end = E::new(board, plan)?;
    while receive(&mut end, board, plan.waiting)? {
        if plan.shape != Shape::Stream {
            end.send(board)?;
        }
    }
    Ok(())
}

/// Takes the next message; false if it is over.
#[inline(always)]
fn receive<E: End>(end: &mut E, board: &Board, waiting: Waiting) -> Result<bool, HostError> {
    let (mut looks, mut start) = (0u32, None);
    loop {
        let has_come = match waiting {
            Waiting::Spins => end.take(board)?,
            Waiting::Waits => end.wait(board)?,
        };
        if has_come {
            return Ok(true);
        }
        end.tell(board)?;
        if board.word(STOP) != 0 {
            return Ok(false);
        }
        looks += 1;
        if waiting == Waiting::Waits || looks.is_multiple_of(LOOKS) {
            // Another thread of this process, on the same core, may have to do something first.
            std::thread::yield_now();
            let start = *start.get_or_insert_with(Instant::now);
            if start.elapsed() > TIMEOUT {
                return Err(HostError::other("no message came in time"));
            }
        }
    }
}

/// Messages that were sent and taken, and what hosts tell each other about them.
#[derive(Default)]
struct Counts {
    sent: u64,
    taken: u64,
    told: u64,
    is_stream: bool,
}

impl Counts {
    fn of(plan: FramePlan) -> Counts {
        Counts { is_stream: plan.shape == Shape::Stream, ..Counts::default() }
    }

    /// Writes how many were taken to the host that sent them.
    #[inline(always)]
    fn tell(&mut self, board: &Board) -> Result<(), HostError> {
        if self.is_stream && self.told != self.taken {
            board.remote.signal(TAKEN, self.taken)?;
            self.told = self.taken;
        }
        Ok(())
    }

    /// Waits until at least `taken` were taken.
    #[inline(always)]
    fn wait(&self, board: &Board, taken: u64) -> Result<(), HostError> {
        match board.word(TAKEN) >= taken || board.poll_until(|| board.word(TAKEN) >= taken)? {
            true => Ok(()),
            false => Err(HostError::other("stopped by itself")),
        }
    }
}

/// Writes into places of the other's segment, whose last word says that all of a place is there, as the
/// header of a frame does.
struct Writes {
    buffer: Vec<u8>,
    counts: Counts,
    misses: u32,
}

impl Writes {
    fn place(&self, number: u64) -> usize {
        RING + (number % PLACES) as usize * self.buffer.len()
    }
}

impl End for Writes {
    fn new(_: &Board, plan: FramePlan) -> Result<Self, HostError> {
        let buffer = vec![0; plan.message_bytes()];
        Ok(Writes { buffer, counts: Counts::of(plan), misses: 0 })
    }

    #[inline(always)]
    fn send(&mut self, board: &Board) -> Result<(), HostError> {
        let Counts { sent, is_stream, .. } = self.counts;
        if is_stream && sent >= PLACES && sent.is_multiple_of(FRAMES.into()) {
            self.counts.wait(board, sent + u64::from(FRAMES) - PLACES)?;
        }
        let (at, number) = (self.place(sent), sent + 1);
        let last = self.buffer.len() - LINE;
        let write = |bytes: &[u8]| match bytes.len() {
            0 => Ok(()),
            len if len <= MAX_OPERATION => board.remote.write(at, bytes),
            _ => board.remote.write_block(at, bytes),
        };
        if board.remote.is_mapped() {
            // The bytes of a write come in no order: only the words after it say that all are there.
            write(&self.buffer[..last])?;
            board.remote.signal_words(at + last, &[number, 0, 0, 0, 0, 0, 0, number])?;
        } else {
            self.buffer[last + LINE - 8..].copy_from_slice(&number.to_ne_bytes());
            write(&self.buffer)?;
        }
        self.counts.sent += 1;
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, board: &Board) -> Result<bool, HostError> {
        let at = self.place(self.counts.taken) + self.buffer.len() - 8;
        if board.own.memory().load(at, Acquire) != self.counts.taken + 1 {
            self.misses += 1;
            if !board.remote.is_mapped() || self.misses.is_multiple_of(LANES_EVERY) {
                board.attached.poll();
            }
            return Ok(false);
        }
        self.counts.taken += 1;
        if self.counts.taken.is_multiple_of(FRAMES.into()) {
            self.counts.tell(board)?;
        }
        Ok(true)
    }

    fn wait(&mut self, board: &Board) -> Result<bool, HostError> {
        self.take(board)
    }

    fn flush(&mut self, board: &Board) -> Result<(), HostError> {
        self.counts.wait(board, self.counts.sent)
    }

    #[inline(always)]
    fn tell(&mut self, board: &Board) -> Result<(), HostError> {
        self.counts.tell(board)
    }
}

/// The mailbox of this host, and a sender to the other's.
fn boxes(
    board: &Board,
    plan: FramePlan,
    (bytes, is_fixed): (usize, bool),
) -> Result<(Mailbox, Sender), HostError> {
    let own = board.segments.local();
    let name = |HostId(host): HostId| format!("bench/mailbox-{host}");
    let builder = Mailbox::builder(&name(own)).banks(BANKS).frames(FRAMES).frame_bytes(bytes);
    let builder = if is_fixed { builder.fixed() } else { builder.variable() }.senders(1);
    let builder = match plan.waiting {
        Waiting::Spins => builder.never_sleeps(),
        Waiting::Waits => builder,
    };
    let inbox = builder.export(&board.segments).map_err(failed)?;
    let other = HostId(1 - own.0);
    let options = Sender::options(&board.segments).host(other).timeout(TIMEOUT);
    Ok((inbox, options.open(&name(other)).map_err(failed)?))
}

/// Frames that run nothing.
struct Frames {
    inbox: Mailbox,
    out: Sender,
    payload: Vec<u8>,
    counts: Counts,
}

impl End for Frames {
    fn new(board: &Board, plan: FramePlan) -> Result<Self, HostError> {
        let (inbox, out) = boxes(board, plan, (plan.bytes, true))?;
        Ok(Frames { inbox, out, payload: vec![7; plan.bytes], counts: Counts::of(plan) })
    }

    #[inline(always)]
    fn send(&mut self, _: &Board) -> Result<(), HostError> {
        let header = FrameHeader { reply: self.counts.sent, ..FrameHeader::default() };
        self.counts.sent += 1;
        let parts = Parts { payload: &self.payload, ..Parts::default() };
        self.out.send(&header, parts).map_err(failed)
    }

    #[inline(always)]
    fn take(&mut self, _: &Board) -> Result<bool, HostError> {
        let has_come = self.inbox.poll().map_err(failed)?.is_some();
        self.counts.taken += u64::from(has_come);
        Ok(has_come)
    }

    fn wait(&mut self, _: &Board) -> Result<bool, HostError> {
        let has_come = self.inbox.next_timeout(NAP).map_err(failed)?.is_some();
        self.counts.taken += u64::from(has_come);
        Ok(has_come)
    }

    fn flush(&mut self, board: &Board) -> Result<(), HostError> {
        self.counts.wait(board, self.counts.sent)
    }

    #[inline(always)]
    fn tell(&mut self, board: &Board) -> Result<(), HostError> {
        self.counts.tell(board)
    }
}

/// Calls of jams, which run on a table of the host that takes them.
struct Jams {
    inbox: ReactiveMailbox,
    out: JamSender,
    function: Function,
    mode: Mode,
    numbers: Vec<i32>,
    payload: Vec<u8>,
}

impl End for Jams {
    fn new(board: &Board, plan: FramePlan) -> Result<Self, HostError> {
        let Message::Jam(function, form) = plan.message else {
            return Err(HostError::other(format!("{:?} is no jam", plan.message)));
        };
        let (inbox, out) = boxes(board, plan, (plan.bytes + BESIDES, false))?;
        Ok(Jams {
            inbox: ReactiveMailbox::new(inbox).with(Table::new(TABLE)),
            out: JamSender::new(out).map_err(failed)?,
            function,
            mode: form.mode(),
            numbers: (0..plan.bytes as i32 / 4).collect(),
            payload: vec![7; plan.bytes],
        })
    }

    #[inline(always)]
    fn send(&mut self, _: &Board) -> Result<(), HostError> {
        let Jams { out, function, mode, numbers, payload, .. } = self;
        let key = out.sent() % KEYS;
        let sent = match function {
            Function::Sum => out.send(&SERVER_SIDE_SUM.in_mode(*mode), (), numbers),
            Function::Put => {
                let args = PutArgs { key, offset: 0 };
                out.send(&INDIRECT_PUT.in_mode(*mode), args, payload)
            }
            Function::Slot => out.send(&SLOT.in_mode(*mode), key, &[]),
            Function::Mixed => out.send(&MIXED.in_mode(*mode), key, &[]),
        };
        sent.map_err(failed)
    }

    #[inline(always)]
    fn take(&mut self, _: &Board) -> Result<bool, HostError> {
        ran(self.inbox.poll().map_err(failed)?)
    }

    fn wait(&mut self, _: &Board) -> Result<bool, HostError> {
        ran(self.inbox.next_timeout(NAP).map_err(failed)?)
    }

    fn flush(&mut self, _: &Board) -> Result<(), HostError> {
        match self.out.flush(TIMEOUT).map_err(failed)?.failed {
            0 => Ok(()),
            failed => Err(HostError::other(format!("{failed} calls failed"))),
        }
    }

    fn tell(&mut self, _: &Board) -> Result<(), HostError> {
        Ok(())
    }
}

#[inline(always)]
fn ran(outcome: Option<Outcome>) -> Result<bool, HostError> {
    match outcome {
        None => Ok(false),
        Some(Outcome::Ran) => Ok(true),
        Some(Outcome::Failed(failure)) => Err(failed(failure)),
    }
}

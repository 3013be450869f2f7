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
use segment::HostId;

use super::frames::{BANKS, FRAMES, FramePlan, Message, Shape, Waiting};
use super::writes::{Counts, Writes};
use super::{Function, KEYS, TABLE};
use crate::measure::watch::{WaitMode, cpu_of_process};
use crate::product::segment::board::{Board, HostError, PID, STOP, TIMEOUT};
use crate::product::segment::importer::{half, median_ns, watched};
use crate::product::segment::plan::{Figure, Statistic};

/// Bytes of a frame besides the payload: arguments, code.
const BESIDES: usize = 1024;
/// Looks that find nothing after which a host reads the clock.
const LOOKS: u32 = 1 << 16;
/// How long a host that may sleep waits before it looks whether it is over.
const NAP: Duration = Duration::from_millis(50);
/// The pause between two round trips of a paced plan.
const PAUSE: Duration = Duration::from_millis(1);

/// One host's end of both ways.
pub(super) trait End: Sized {
    fn new(board: &Board, plan: FramePlan) -> Result<Self, HostError>;
    /// Sends a message; waits for room. The other host is to tell at once that it has taken one that
    /// `is_last`, and all before it.
    fn send(&mut self, board: &Board, is_last: bool) -> Result<(), HostError>;
    /// Takes a message, if one has come.
    fn take(&mut self, board: &Board) -> Result<bool, HostError>;
    /// Takes a message, and waits for it for a while; may sleep.
    fn wait(&mut self, board: &Board) -> Result<bool, HostError>;
    /// Waits until the other host has taken all that was sent, behind a message that was the last.
    fn flush(&mut self, board: &Board) -> Result<(), HostError>;
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
        Message::Write | Message::BareWrite => measure_by::<Writes>(board, plan, statistic, time),
        Message::Empty => measure_by::<Frames>(board, plan, statistic, time),
        Message::Jam(..) => measure_by::<Jams>(board, plan, statistic, time),
    }
}

/// What host 1 does, until host 0 stops it.
pub(in crate::product) fn serve(board: &Board, plan: FramePlan) -> Result<(), HostError> {
    match plan.message {
        Message::Write | Message::BareWrite => serve_by::<Writes>(board, plan),
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
        end.send(board, false)?;
        match receive(end, board, waiting)? {
            true => Ok(()),
            false => Err(HostError::other("stopped by itself")),
        }
    };
    let burst = |end: &mut E, n| {
        (1..=n).try_for_each(|number| end.send(board, number == n))?;
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
            end.send(board, false)?;
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
    fn send(&mut self, _: &Board, is_last: bool) -> Result<(), HostError> {
        let (kind, reply) = (is_last.into(), self.counts.sent);
        let header = FrameHeader { kind, reply, ..FrameHeader::default() };
        self.counts.sent += 1;
        let parts = Parts { payload: &self.payload, ..Parts::default() };
        self.out.send(&header, parts).map_err(failed)
    }

    #[inline(always)]
    fn take(&mut self, board: &Board) -> Result<bool, HostError> {
        let is_last = self.inbox.poll().map_err(failed)?.map(|frame| frame.header().kind != 0);
        self.took(board, is_last)
    }

    fn wait(&mut self, board: &Board) -> Result<bool, HostError> {
        let frame = self.inbox.next_timeout(NAP).map_err(failed)?;
        let is_last = frame.map(|frame| frame.header().kind != 0);
        self.took(board, is_last)
    }

    fn flush(&mut self, board: &Board) -> Result<(), HostError> {
        self.counts.wait(board, self.counts.sent)
    }
}

impl Frames {
    /// Notes that a frame was taken, if one was; it may have been the last.
    #[inline(always)]
    fn took(&mut self, board: &Board, is_last: Option<bool>) -> Result<bool, HostError> {
        let Some(is_last) = is_last else { return Ok(false) };
        self.counts.taken += 1;
        if is_last {
            self.counts.tell(board)?;
        }
        Ok(true)
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
    fn send(&mut self, _: &Board, _is_last: bool) -> Result<(), HostError> {
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
}

#[inline(always)]
fn ran(outcome: Option<Outcome>) -> Result<bool, HostError> {
    match outcome {
        None => Ok(false),
        Some(Outcome::Ran) => Ok(true),
        Some(Outcome::Failed(failure)) => Err(failed(failure)),
    }
}

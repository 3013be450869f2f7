//! What host 0 does: it uses the segment of host 1, and measures that.

use std::hint::black_box;
use std::time::{Duration, Instant};

use segment::{HostId, SegmentError, Strategy};

use super::board::{Board, DATA, HostError, PID};
use super::exporter::{VALUE, WOKEN, notified, now_ns};
use super::local::Buffer;
use super::pair::{Counted, Counters};
use super::plan::{Figure, NameOp, Plan, RemoteOp, Request, Statistic, Wait};
use crate::measure::watch::{WaitMode, Watch, cpu_of_process, process_cpu, thread_cpu};
#[cfg(feature = "jam")]
use crate::product::jam::ends;

/// Bytes within which operations on words go round: they stay in the fastest cache.
const WINDOW: usize = 4096;
/// Operations whose requests are counted.
const COUNTED: u64 = 1000;
/// How long the exporter gets to fall asleep before it is woken.
const PAUSE: Duration = Duration::from_micros(1500);
/// Bytes of a record of the registry.
const ENTRY: usize = 128;

/// Measures what is asked.
pub(super) fn measure(
    board: &Board,
    counters: &Counters,
    request: Request,
) -> Result<Figure, HostError> {
    let Request { plan, statistic, time } = request;
    board.wait_until_ready()?;
    match plan {
        Plan::Repeat(op) | Plan::RepeatAsleep(op) => repeat(board, op, statistic, time),
        Plan::OneWay(bytes) => {
            let mut buffer = vec![0; bytes];
            let mut number = 0u64;
            let figure = timed(statistic, time, |n| {
                for _ in 0..n {
                    number += 1;
                    buffer[bytes - 8..].copy_from_slice(&number.to_ne_bytes());
                    board.remote.write(DATA, &buffer)?;
                    board.poll_for(DATA + bytes - 8, number)?;
                }
                Ok(())
            });
            half(figure)
        }
        Plan::Notify(wait) => {
            let mut number = 0u64;
            let trip = |n| {
                for _ in 0..n {
                    number += 1;
                    board.remote.write_notify(DATA, &number.to_ne_bytes())?;
                    notified(board, wait)?;
                }
                Ok(())
            };
            half(match wait {
                Wait::Polls => timed(statistic, time, trip),
                Wait::Sleeps => watched(WaitMode::Blocks, statistic, time, trip),
            })
        }
        Plan::WakeUp | Plan::WakeUpAtDescriptor => wake_up(board, time),
        Plan::Names(op) => names(board, op, statistic, time),
        Plan::OwnerCpu(op) => owner_cpu(board, op, time),
        Plan::WorkRequests(op) => counted(board, counters, op, |counted| counted.work_requests),
        Plan::Doorbells(op) => counted(board, counters, op, |counted| counted.doorbells),
        #[cfg(feature = "jam")]
        Plan::Frames(plan) => ends::measure(board, plan, statistic, time),
    }
}

/// Of a round trip.
pub(in crate::product) fn half(figure: Result<Figure, HostError>) -> Result<Figure, HostError> {
    figure.map(|figure| Figure { value: figure.value / 2.0, tail: figure.tail / 2.0, ..figure })
}

/// Times `work(n)`, which performs n operations: nanoseconds an operation.
fn timed(
    statistic: Statistic,
    time: Duration,
    work: impl FnMut(u64) -> Result<(), HostError>,
) -> Result<Figure, HostError> {
    watched(WaitMode::Polls, statistic, time, work)
}

/// As [`timed`], for a thread that may sleep if `wait_mode` says so.
pub(in crate::product) fn watched(
    wait_mode: WaitMode,
    statistic: Statistic,
    time: Duration,
    mut work: impl FnMut(u64) -> Result<(), HostError>,
) -> Result<Figure, HostError> {
    let (warm_up, mut n) = (Instant::now(), 16u64);
    let per_second = loop {
        let start = Instant::now();
        work(n)?;
        let spent = start.elapsed();
        let counts = match statistic {
            Statistic::Mean => spent,
            // Which needs no number of operations beforehand, so the warm-up need not find one.
            Statistic::Median => warm_up.elapsed(),
        };
        if counts * 10 > time {
            break n as f64 / spent.as_secs_f64();
        }
        if statistic == Statistic::Mean {
            n *= 4;
        }
    };
    let n = ((per_second * time.as_secs_f64()) as u64).max(1);
    let (watch, start) = (Watch::start(wait_mode), Instant::now());
    let mut tail = 0.0;
    let value = match statistic {
        Statistic::Mean => {
            work(n)?;
            start.elapsed().as_secs_f64() * 1e9 / n as f64
        }
        Statistic::Median => {
            let mut took = Vec::new();
            let mut began = start;
            while began - start < time {
                work(1)?;
                let now = Instant::now();
                took.push(now - began);
                began = now;
            }
            let median = median_ns(&mut took);
            tail = took[(took.len() * 999 / 1000).min(took.len() - 1)].as_secs_f64() * 1e9;
            median
        }
    };
    Ok(Figure { tail, ..Figure::of(value, watch.stop().lost) })
}

/// The median; sorts them.
pub(in crate::product) fn median_ns(took: &mut [Duration]) -> f64 {
    took.sort_unstable();
    took.get(took.len() / 2).map_or(f64::NAN, |took| took.as_secs_f64() * 1e9)
}

/// Repeats an operation.
fn repeat(
    board: &Board,
    op: RemoteOp,
    statistic: Statistic,
    time: Duration,
) -> Result<Figure, HostError> {
    let remote = &board.remote;
    // Beyond the words that the exporter reads.
    let place = |n: u64| DATA + (n as usize * 8) % WINDOW;
    match op {
        RemoteOp::Nothing => watched(WaitMode::Blocks, statistic, time, |n| {
            (0..n).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
            Ok(())
        }),
        RemoteOp::Read(8) => timed(statistic, time, |n| {
            let mut word = [0; 8];
            for i in 0..n {
                remote.read(black_box(place(i)), &mut word)?;
                black_box(u64::from_ne_bytes(word));
            }
            Ok(())
        }),
        RemoteOp::Write(8) => timed(statistic, time, |n| {
            for i in 0..n {
                remote.write(black_box(place(i)), &black_box(i).to_ne_bytes())?;
            }
            Ok(())
        }),
        RemoteOp::Read(bytes) => {
            let mut buffer = Buffer::new(bytes);
            timed(statistic, time, |n| {
                for _ in 0..n {
                    remote.read(DATA, black_box(&mut *buffer))?;
                }
                Ok(())
            })
        }
        RemoteOp::Write(bytes) => {
            let buffer = Buffer::new(bytes);
            timed(statistic, time, |n| {
                for _ in 0..n {
                    remote.write(DATA, black_box(&buffer))?;
                }
                Ok(remote.fence()?)
            })
        }
        RemoteOp::FencedWrite(bytes) => {
            let buffer = Buffer::new(bytes);
            timed(statistic, time, |n| {
                for _ in 0..n {
                    remote.write(DATA, black_box(&buffer))?;
                    remote.fence()?;
                }
                Ok(())
            })
        }
        RemoteOp::ReadBlock(bytes) => {
            let mut buffer = Buffer::new(bytes);
            timed(statistic, time, |n| {
                for _ in 0..n {
                    remote.read_block(DATA, black_box(&mut *buffer))?;
                }
                Ok(())
            })
        }
        RemoteOp::WriteBlock(bytes) => {
            let buffer = Buffer::new(bytes);
            timed(statistic, time, |n| {
                for _ in 0..n {
                    remote.write_block(DATA, black_box(&buffer))?;
                }
                Ok(remote.fence()?)
            })
        }
        RemoteOp::FetchAdd => timed(statistic, time, |n| {
            for i in 0..n {
                black_box(remote.fetch_add(black_box(place(i)), 1)?);
            }
            Ok(())
        }),
        RemoteOp::CompareSwap => {
            let mut value = 0;
            timed(statistic, time, |n| {
                for _ in 0..n {
                    let old = remote.compare_swap(DATA, black_box(value), value + 1)?;
                    if old != value {
                        return Err(HostError::other(format!("found {old}, expected {value}")));
                    }
                    value += 1;
                }
                Ok(())
            })
        }
        RemoteOp::ReadChain => {
            let mut at = DATA as u64;
            let figure = timed(statistic, time, |n| {
                let mut word = [0; 8];
                for _ in 0..n {
                    remote.read(at as usize, &mut word)?;
                    at = u64::from_ne_bytes(word);
                }
                Ok(())
            });
            black_box(at);
            figure
        }
        RemoteOp::ReadRecord(64) => records::<8>(board, statistic, time),
        RemoteOp::ReadRecord(1024) => records::<128>(board, statistic, time),
        RemoteOp::ReadRecord(bytes) => Err(HostError::other(format!("no record of {bytes} bytes"))),
    }
}

/// Reads a record of this many words.
fn records<const WORDS: usize>(
    board: &Board,
    statistic: Statistic,
    time: Duration,
) -> Result<Figure, HostError> {
    let record = board.remote.record_at_byte::<[u64; WORDS]>(DATA)?;
    timed(statistic, time, |n| {
        for _ in 0..n {
            let read = black_box(&record).read()?;
            let read = black_box(&read).as_ref();
            if read.is_none_or(|(_, words)| words[WORDS - 1] != VALUE) {
                return Err(HostError::other("the record is not what was written"));
            }
        }
        Ok(())
    })
}

/// The median of how long the exporter, which sleeps, took to run.
fn wake_up(board: &Board, time: Duration) -> Result<Figure, HostError> {
    let (start, watch) = (Instant::now(), Watch::start(WaitMode::Blocks));
    let mut took = Vec::new();
    for number in 1u64.. {
        board.remote.write_notify(DATA, &now_ns().to_ne_bytes())?;
        // Long enough for it to run, say when that was, and sleep again: reading what it says does
        // not disturb it then.
        std::thread::sleep(PAUSE);
        let mut woken = [0; 16];
        let answered = Instant::now();
        while u64::from_ne_bytes(woken[..8].try_into().unwrap_or_default()) != number {
            board.remote.read(WOKEN, &mut woken)?;
            if answered.elapsed() > super::board::TIMEOUT {
                return Err(HostError::other("the other host was not woken in time"));
            }
        }
        let ns = u64::from_ne_bytes(woken[8..].try_into().unwrap_or_default());
        took.push(Duration::from_nanos(ns));
        if start.elapsed() > time {
            break;
        }
    }
    Ok(Figure::of(median_ns(&mut took), watch.stop().lost))
}

/// What is done with names.
fn names(
    board: &Board,
    op: NameOp,
    statistic: Statistic,
    time: Duration,
) -> Result<Figure, HostError> {
    let options = board.segments.options().host(HostId(1));
    let lookup = |options: &segment::OpenOptions, n: u64| {
        for _ in 0..n {
            black_box(options.lookup(super::board::EXPORTER)?);
        }
        Ok::<_, HostError>(())
    };
    match op {
        NameOp::Cached => timed(statistic, time, |n| lookup(&options, n)),
        NameOp::Uncached => {
            let options = options.uncached();
            timed(statistic, time, |n| lookup(&options, n))
        }
        NameOp::ControlTransfer => {
            let options = options.uncached().strategy(Strategy::Ask);
            timed(statistic, time, |n| lookup(&options, n))
        }
        NameOp::CachedAndRead => {
            let cached = timed(statistic, time / 2, |n| lookup(&options, n))?;
            let read = repeat(board, RemoteOp::Read(ENTRY), statistic, time / 2)?;
            let (value, lost) = (cached.value + 1.2 * read.value, cached.lost.max(read.lost));
            Ok(Figure::of(value, lost))
        }
        NameOp::Export => alternate(board, time, |exported, _| exported),
        NameOp::Revoke => alternate(board, time, |_, revoked| revoked),
    }
}

/// Exports and revokes segments in turn; the median of what `which` chooses of the time for both.
fn alternate(
    board: &Board,
    time: Duration,
    which: impl Fn(Duration, Duration) -> Duration,
) -> Result<Figure, HostError> {
    let (start, watch) = (Instant::now(), Watch::start(WaitMode::Blocks));
    let others_before = process_cpu().saturating_sub(thread_cpu());
    let mut took = Vec::new();
    for number in 0.. {
        let builder = board.segments.builder(&format!("bench/{}", number % 64)).len(4096);
        let began = Instant::now();
        let segment = builder.export()?;
        let exported = began.elapsed();
        let began = Instant::now();
        segment.revoke()?;
        took.push(which(exported, began.elapsed()));
        if start.elapsed() > time {
            break;
        }
    }
    let share = watch.stop();
    // Other threads of this process, on the same core, do part of the work: waiting for them is no
    // disturbance.
    let others = process_cpu().saturating_sub(thread_cpu()).saturating_sub(others_before);
    let lost = share.lost - others.as_secs_f64() / share.wall.as_secs_f64();
    Ok(Figure::of(median_ns(&mut took), lost.max(0.0)))
}

/// CPU time of the exporter's process, in percent of a core.
fn owner_cpu(board: &Board, op: RemoteOp, time: Duration) -> Result<Figure, HostError> {
    let mut pid = [0; 8];
    board.remote.read(PID, &mut pid)?;
    let pid = u32::try_from(u64::from_ne_bytes(pid)).unwrap_or(0);
    // Warm up first.
    repeat(board, op, Statistic::Mean, time / 4)?;
    let (start, before) = (Instant::now(), cpu_of_process(pid)?);
    let Figure { lost, .. } = repeat(board, op, Statistic::Mean, time)?;
    let used = cpu_of_process(pid)?.saturating_sub(before);
    Ok(Figure::of(100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64(), lost))
}

/// How much of something there was for each operation.
fn counted(
    board: &Board,
    counters: &Counters,
    op: RemoteOp,
    which: impl Fn(Counted) -> u64,
) -> Result<Figure, HostError> {
    let counters = counters.as_deref().ok_or_else(|| HostError::other("nothing counts here"))?;
    let before = which(counters());
    for _ in 0..COUNTED {
        operate(board, op)?;
    }
    let counted = which(counters()) - before;
    Ok(Figure::of(counted as f64 / COUNTED as f64, 0.0))
}

/// One operation, of those whose requests are counted.
fn operate(board: &Board, op: RemoteOp) -> Result<(), SegmentError> {
    let remote = &board.remote;
    match op {
        RemoteOp::Read(bytes) => remote.read(DATA, &mut vec![0; bytes]),
        RemoteOp::Write(bytes) => remote.write(DATA, &vec![7; bytes]),
        RemoteOp::FencedWrite(bytes) => {
            remote.write(DATA, &vec![7; bytes])?;
            remote.fence()
        }
        RemoteOp::ReadBlock(bytes) => remote.read_block(DATA, &mut vec![0; bytes]),
        RemoteOp::WriteBlock(bytes) => remote.write_block(DATA, &vec![7; bytes]),
        RemoteOp::FetchAdd => remote.fetch_add(DATA, 1).map(drop),
        RemoteOp::CompareSwap => remote.compare_swap(DATA, 0, 0).map(drop),
        RemoteOp::Nothing | RemoteOp::ReadChain | RemoteOp::ReadRecord(_) => Ok(()),
    }
}

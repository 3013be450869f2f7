//! What host 1 does: it owns the segment, and answers where a plan asks for that.

use std::time::Duration;

use primitive::sync::Ordering::{Acquire, Release};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};
use segment::Segment;

use super::board::{Board, DATA, HostError, READY, STOP, TIMEOUT};
use super::plan::{Plan, RemoteOp, Wait};

/// How long a host that has nothing to do sleeps, at most.
const NAP: Duration = Duration::from_millis(100);

/// Where the exporter of a plan that wakes it writes how long that took: one more than the number of
/// the notification, and nanoseconds.
pub(super) const WOKEN: usize = DATA + 64;

/// The payload of the records that are read.
pub(super) const VALUE: u64 = 0x0123_4567_89ab_cdef;

/// Serves until the importer says that it is over.
pub(super) fn serve(board: &Board, plan: Plan) -> Result<(), HostError> {
    prepare(board, plan)?;
    board.own.at(READY / 8).write(&1u64)?;
    match plan {
        Plan::OneWay(bytes) => answer(board, bytes),
        Plan::Notify(wait) => answer_notifications(board, wait),
        Plan::WakeUp => report_wake_ups(board),
        Plan::WakeUpAtDescriptor => report_wake_ups_at_descriptor(board),
        Plan::RepeatAsleep(_) | Plan::OwnerCpu(_) => {
            while board.word(STOP) == 0 {
                board.attached.park(NAP);
            }
            Ok(())
        }
        Plan::Repeat(_) | Plan::WorkRequests(_) | Plan::Doorbells(_) | Plan::Names(_) => {
            board.poll_until(|| false).map(drop)
        }
        #[cfg(feature = "jam")]
        Plan::Frames(plan) => crate::product::jam::ends::serve(board, plan),
    }
}

/// Writes what the importer is to find.
fn prepare(board: &Board, plan: Plan) -> Result<(), HostError> {
    let (Plan::Repeat(op) | Plan::RepeatAsleep(op) | Plan::OwnerCpu(op)) = plan else {
        return Ok(());
    };
    match op {
        RemoteOp::ReadChain => chain(board),
        RemoteOp::ReadRecord(64) => write_record::<8>(board),
        RemoteOp::ReadRecord(1024) => write_record::<128>(board),
        RemoteOp::ReadRecord(bytes) => Err(HostError::other(format!("no record of {bytes} bytes"))),
        _ => Ok(()),
    }
}

fn write_record<const WORDS: usize>(board: &Board) -> Result<(), HostError> {
    board.own.record_at_byte::<[u64; WORDS]>(DATA)?.write(&[VALUE; WORDS]);
    Ok(())
}

/// Words of 4 KiB, each of which holds the place of the next, so that all are visited.
fn chain(board: &Board) -> Result<(), HostError> {
    const WORDS: usize = 512;
    // Odd, and so a generator of all places.
    const STRIDE: usize = 187;
    for word in 0..WORDS {
        let next = (word + STRIDE) % WORDS;
        board.own.at((DATA / 8) + word).write(&((DATA + next * 8) as u64))?;
    }
    Ok(())
}

/// Writes back as many bytes as were written, whenever they have been.
fn answer(board: &Board, bytes: usize) -> Result<(), HostError> {
    let (mut buffer, last) = (vec![0; bytes], DATA + bytes - 8);
    for number in 1u64.. {
        if !board.poll_for(last, number)? {
            break;
        }
        buffer[bytes - 8..].copy_from_slice(&number.to_ne_bytes());
        board.remote.write(DATA, &buffer)?;
    }
    Ok(())
}

fn answer_notifications(board: &Board, wait: Wait) -> Result<(), HostError> {
    for number in 1u64.. {
        if !notified(board, wait)? {
            break;
        }
        board.remote.write_notify(DATA, &number.to_ne_bytes())?;
    }
    Ok(())
}

/// Waits for a notification; false if it is over.
pub(super) fn notified(board: &Board, wait: Wait) -> Result<bool, HostError> {
    match wait {
        Wait::Sleeps => {
            board.own.notified()?;
            Ok(board.word(STOP) == 0)
        }
        Wait::Polls => {
            // An error is found again when the next notification is waited for.
            board.look_until(|| matches!(board.notifications.try_next(), Ok(Some(_))))
        }
    }
}

/// Nanoseconds of a clock that all processes of a machine share.
pub(super) fn now_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec.unsigned_abs() * 1_000_000_000 + tv_nsec.unsigned_abs()
}

/// The importer writes the time at which it notifies.
fn report_wake_ups(board: &Board) -> Result<(), HostError> {
    for number in 1u64.. {
        board.own.notified()?;
        let now = now_ns();
        if !report(&board.own, number, now) {
            break;
        }
    }
    Ok(())
}

/// Writes how long it took; false if it is over.
fn report(own: &Segment, number: u64, now: u64) -> bool {
    let memory = own.memory();
    if memory.load(STOP, Acquire) != 0 {
        return false;
    }
    memory.store(WOKEN + 8, now.saturating_sub(memory.load(DATA, Acquire)), Release);
    memory.store(WOKEN, number, Release);
    true
}

/// A thread of its own waits at the descriptor; this one, which is attached, sleeps until something
/// arrives.
fn report_wake_ups_at_descriptor(board: &Board) -> Result<(), HostError> {
    let (own, notifications) = (&board.own, board.own.notifications());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| -> Result<(), HostError> {
            let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
            for number in 1u64.. {
                let mut files = [PollFd::new(&notifications, PollFlags::IN)];
                if poll(&mut files, Some(&timeout)).map_err(std::io::Error::from)? == 0 {
                    return Err(HostError::other("no notification came in time"));
                }
                let now = now_ns();
                while notifications.try_next()?.is_some() {}
                if !report(own, number, now) {
                    break;
                }
            }
            Ok(())
        });
        while !waiting.is_finished() {
            board.attached.park(NAP);
        }
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

//! How the system itself wakes a process: an eventfd that one process writes and the other, which
//! sleeps, reads.
//!
//! The processes share two of them, which are standard input and output of the second, since those
//! are what a process can be given without unsafe code.

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{read, write};
use rustix::process::getppid;
use rustix::stdio::{stdin, stdout};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::harness::{Case, Unit};
use crate::measure::cores::{on_core, spawn_on};
use crate::measure::processes::Ended;
use crate::measure::sampling::{CaseError, Reading, Sampler, undisturbed};
use crate::measure::watch::{WaitMode, Watch};
use crate::roles::{self, Lifeline, Role};

/// The process that is woken.
pub const SLEEPER: Role = Role { name: "eventfd-sleeper", run: sleeper };

/// Whether it answers at once, or says how long it took to be woken.
const MODE: &str = "BENCH_EVENTFD";
const ANSWERS: &str = "answers";
const REPORTS: &str = "reports";

/// How long the other may take to answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The pause before a process is woken, so that it sleeps for sure.
const PAUSE: Duration = Duration::from_micros(1500);
/// Round trips between two looks at the clock.
const BURST: u64 = 64;

/// A round trip between two processes, each of which sleeps until the other has written.
pub fn round_trip() -> Case {
    Case::new("eventfd/round trip, both sleep", Unit::Microseconds, |sampler| {
        let (ns, lost) = on_core(sampler.cores.first, || round_trip_ns(sampler))??;
        undisturbed(lost)?;
        Ok(Reading::of(ns / 1e3))
    })
}

/// The median of how long a process took to run that had slept for a while.
pub fn wake_up() -> Case {
    Case::new("eventfd/one way, to a process that sleeps", Unit::Microseconds, |sampler| {
        let (ns, lost) = on_core(sampler.cores.first, || wake_up_ns(sampler))??;
        undisturbed(lost)?;
        Ok(Reading::of(ns / 1e3))
    })
}

/// A process that sleeps, and the two descriptors.
struct Sleeper {
    to: OwnedFd,
    from: OwnedFd,
    _process: Ended,
}

impl Sleeper {
    fn start(sampler: &Sampler, mode: &str) -> Result<Sleeper, CaseError> {
        let file = || eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from);
        let (to, from) = (file()?, file()?);
        let mut command = roles::command(SLEEPER)?;
        command.env(MODE, mode).stdin(to.try_clone()?).stdout(from.try_clone()?);
        let _process = Ended(spawn_on(sampler.cores.second, &mut command)?);
        Ok(Sleeper { to, from, _process })
    }

    /// Writes a value, which must not be zero.
    fn say(&self, value: u64) -> io::Result<()> {
        write(&self.to, &value.to_ne_bytes())?;
        Ok(())
    }

    fn hear(&self) -> io::Result<u64> {
        let mut value = [0; 8];
        read(&self.from, &mut value)?;
        Ok(u64::from_ne_bytes(value))
    }

    /// As [`hear`](Self::hear), and says so if nothing comes.
    fn hear_first(&self) -> Result<u64, CaseError> {
        let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        let mut files = [PollFd::new(&self.from, PollFlags::IN)];
        if poll(&mut files, Some(&timeout)).map_err(io::Error::from)? == 0 {
            return Err(CaseError::Failed("a process that an eventfd should wake is mute".into()));
        }
        Ok(self.hear()?)
    }
}

fn round_trip_ns(sampler: &Sampler) -> Result<(f64, f64), CaseError> {
    let sleeper = Sleeper::start(sampler, ANSWERS)?;
    sleeper.say(1)?;
    sleeper.hear_first()?;
    let burst = || -> io::Result<()> {
        for _ in 0..BURST {
            sleeper.say(1)?;
            sleeper.hear()?;
        }
        Ok(())
    };
    burst()?;
    let (watch, start, mut done) = (Watch::start(WaitMode::Blocks), Instant::now(), 0);
    while start.elapsed() < sampler.time {
        burst()?;
        done += BURST;
    }
    let share = watch.stop();
    Ok((share.wall.as_secs_f64() * 1e9 / done as f64, share.lost))
}

fn wake_up_ns(sampler: &Sampler) -> Result<(f64, f64), CaseError> {
    let sleeper = Sleeper::start(sampler, REPORTS)?;
    sleeper.say(now_ns())?;
    sleeper.hear_first()?;
    let (watch, start, mut took) = (Watch::start(WaitMode::Blocks), Instant::now(), Vec::new());
    while start.elapsed() < sampler.time {
        thread::sleep(PAUSE);
        sleeper.say(now_ns())?;
        thread::sleep(PAUSE);
        // One more than it took, because zero cannot be written.
        took.push(sleeper.hear()? - 1);
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).map_or(f64::NAN, |&ns| ns as f64);
    Ok((median, watch.stop().lost))
}

/// Nanoseconds of a clock that all processes of a machine share.
fn now_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec.unsigned_abs() * 1_000_000_000 + tv_nsec.unsigned_abs()
}

/// Its standard input is no lifeline, so it ends when its parent does.
fn sleeper(_: Lifeline) -> ExitCode {
    let parent = getppid();
    thread::spawn(move || {
        while getppid() == parent {
            thread::sleep(Duration::from_millis(200));
        }
        std::process::exit(1)
    });
    let reports = std::env::var(MODE).as_deref() == Ok(REPORTS);
    match sleep_and_answer(reports) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("eventfd: {e}");
            ExitCode::FAILURE
        }
    }
}

fn sleep_and_answer(reports: bool) -> io::Result<()> {
    let mut value = [0; 8];
    loop {
        read(stdin(), &mut value)?;
        let answer =
            if reports { now_ns().saturating_sub(u64::from_ne_bytes(value)) + 1 } else { 1 };
        write(stdout(), &answer.to_ne_bytes())?;
    }
}

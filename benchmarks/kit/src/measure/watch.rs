//! Whether a thread had its core to itself, from CPU and wall clocks.
//!
//! A thread that polls must show as much CPU time as wall time; the difference is time that
//! somebody else had the core. A thread that blocks may show less, so for it the kernel's own count
//! of time spent runnable but not running (`schedstat`) is taken.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::time::{ClockId, clock_gettime};

/// A sample in which a thread lost more than this share of its time is thrown away.
pub const MAX_LOST: f64 = 0.03;

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    duration(ClockId::ThreadCPUTime)
}

/// CPU time that all threads of this process have used.
pub fn process_cpu() -> Duration {
    duration(ClockId::ProcessCPUTime)
}

fn duration(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // CPU clocks never run below zero, and their nanoseconds stay below a second.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What the kernel counts for one thread: `[time on a core, time waiting for one]`.
///
/// # Errors
/// When `/proc` is not there, the thread is gone, or the kernel counts nothing.
pub fn schedstat(path: &Path) -> io::Result<[Duration; 2]> {
    let text = fs::read_to_string(path)?;
    let mut fields = text.split_whitespace().map(|field| field.parse().map(Duration::from_nanos));
    match (fields.next(), fields.next()) {
        (Some(Ok(ran)), Some(Ok(waited))) => Ok([ran, waited]),
        _ => Err(io::Error::other(format!("`{}` is not a schedstat line: {text}", path.display()))),
    }
}

/// CPU time of every living thread of process `pid`, to the nanosecond.
///
/// # Errors
/// When the process is gone or `/proc` is not there.
pub fn cpu_of_process(pid: u32) -> io::Result<Duration> {
    let mut total = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        match schedstat(&task?.path().join("schedstat")) {
            Ok([ran, _]) => total += ran,
            // A thread may end between the listing and the look.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(total)
}

/// Whether the watched thread is expected to use its core all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// It never sleeps: CPU time below wall time is time lost.
    Polls,
    /// It may sleep: only time spent waiting for a core is lost.
    Blocks,
}

/// A stop watch for the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    wait_mode: WaitMode,
    wall: Instant,
    used: Duration,
}

/// What a [`Watch`] saw.
#[derive(Clone, Copy, Debug)]
pub struct CpuShare {
    /// Wall time between start and stop.
    pub wall: Duration,
    /// Share of it, 0 to 1, in which the thread should have run and did not.
    pub lost: f64,
}

impl Watch {
    /// Starts watching the calling thread.
    pub fn start(wait_mode: WaitMode) -> Watch {
        Watch { wait_mode, used: wait_mode.count(), wall: Instant::now() }
    }

    /// Stops; must be called on the thread that started.
    pub fn stop(self) -> CpuShare {
        let wall = self.wall.elapsed();
        let used = self.wait_mode.count().saturating_sub(self.used);
        let lost = match self.wait_mode {
            WaitMode::Polls => wall.saturating_sub(used),
            WaitMode::Blocks => used,
        };
        CpuShare { wall, lost: lost.as_secs_f64() / wall.as_secs_f64().max(1e-9) }
    }
}

impl WaitMode {
    fn count(self) -> Duration {
        match self {
            WaitMode::Polls => thread_cpu(),
            // Without the kernel's count nothing can be said about a sleeper; zero says nothing.
            WaitMode::Blocks => schedstat(Path::new("/proc/thread-self/schedstat"))
                .map_or(Duration::ZERO, |[_, waited]| waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_sleeper_loses_its_time_only_if_it_should_poll() {
        let (polls, blocks) = (Watch::start(WaitMode::Polls), Watch::start(WaitMode::Blocks));
        thread::sleep(Duration::from_millis(30));
        assert!(polls.stop().lost > 0.5);
        assert!(blocks.stop().lost < 0.5);
    }

    #[test]
    fn the_count_of_a_process_holds_all_its_threads() {
        let busy = |time| {
            let start = thread_cpu();
            while thread_cpu() - start < time {}
        };
        let before = process_cpu();
        let (tell, wait) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            busy(Duration::from_millis(20));
            tell.send(()).expect("the test waits");
            thread::sleep(Duration::from_millis(200));
        });
        wait.recv().expect("the thread reports");
        let seen = cpu_of_process(std::process::id()).expect("own /proc entry");
        assert!(process_cpu() - before >= Duration::from_millis(20));
        assert!(seen >= Duration::from_millis(19), "{seen:?}");
        thread.join().expect("the thread ends");
    }
}

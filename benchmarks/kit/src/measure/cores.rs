//! The two cores that every measurement runs on, and threads and processes pinned to them.
//!
//! Pinned work runs in threads that end with the sample, so nothing has to be unpinned, and a
//! child process inherits its core from the thread that starts it.

use std::process::{Child, Command};
use std::{io, thread};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that a run measures on: the first two that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The core of single-threaded cases, clients and symmetric thread 0.
    pub first: usize,
    /// The core of servers, trustees and symmetric thread 1.
    pub second: usize,
}

impl Cores {
    /// Reads the affinity mask of this process.
    ///
    /// # Errors
    /// When the mask cannot be read or holds fewer than two cores: figures about two threads taken
    /// on one core would measure the scheduler.
    pub fn of_this_process() -> io::Result<Cores> {
        let mask = sched_getaffinity(None)?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&core| mask.is_set(core));
        match (allowed.next(), allowed.next()) {
            (Some(first), Some(second)) => Ok(Cores { first, second }),
            _ => Err(io::Error::other(
                "two cores are needed, and this process may use fewer; widen its affinity mask",
            )),
        }
    }

    /// Both cores, in order.
    pub fn both(self) -> [usize; 2] {
        [self.first, self.second]
    }
}

/// Ties the calling thread to `core` for the rest of its life.
///
/// # Errors
/// The kernel's answer, with the core in the message.
pub fn pin(core: usize) -> io::Result<()> {
    let mut mask = CpuSet::new();
    mask.set(core);
    sched_setaffinity(None, &mask)
        .map_err(|e| io::Error::other(format!("cannot pin a thread to core {core}: {e}")))
}

/// Runs `work` on a fresh thread pinned to `core` and waits for it.
///
/// # Errors
/// When pinning fails; `work` then does not run.
///
/// # Panics
/// With the panic of `work`.
pub fn on_core<R: Send>(core: usize, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let thread = scope.spawn(move || pin(core).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Starts `command` as a process pinned to `core`.
///
/// # Errors
/// When pinning or starting fails; the message names the program.
pub fn spawn_on(core: usize, command: &mut Command) -> io::Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    on_core(core, || command.spawn())?
        .map_err(|e| io::Error::new(e.kind(), format!("cannot start `{program}`: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_sees_one_core() {
        let cores = Cores::of_this_process().expect("two cores");
        let mask = on_core(cores.second, || sched_getaffinity(None).expect("mask")).expect("pin");
        assert!(mask.is_set(cores.second));
        assert_eq!(mask.count(), 1);
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        let error = on_core(CpuSet::MAX_CPU - 1, || ()).expect_err("no such core");
        assert!(error.to_string().contains("cannot pin"), "{error}");
    }

    #[test]
    fn a_child_inherits_the_core() {
        let cores = Cores::of_this_process().expect("two cores");
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        command.stdout(std::process::Stdio::piped());
        let child = spawn_on(cores.second, &mut command).expect("grep");
        let text = String::from_utf8(child.wait_with_output().expect("grep").stdout).expect("text");
        assert_eq!(text.split_whitespace().last(), Some(cores.second.to_string().as_str()));
    }
}

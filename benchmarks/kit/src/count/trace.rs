//! The two processes: one runs a workload, the other single-steps it and counts.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode, Stdio};
use std::{env, io};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use thiserror::Error;

use super::decode::{Kind, LONGEST, kind};
use super::mark::{ALLOCATED, END, FREED, PAUSE};
use crate::measure::cores::on_core;

const VARIABLE: &str = "BENCH_COUNTED";
/// The most instructions of a workload: stepping more would take minutes.
const MOST_STEPS: u64 = 50_000_000;
/// Locations recorded per phase, from the first on.
const MOST_OFFENCES: usize = 8;

/// Something to count, and the names of its phases.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in the environment.
    pub name: &'static str,
    /// Names of the phases 0, 1, ...
    pub phases: &'static [&'static str],
    /// Sets up, calls [`begin`](super::mark::begin), marks its phases, and ends with
    /// [`end`](super::mark::end).
    pub run: fn(),
}

/// What one phase executed, over all its visits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// The name.
    pub name: String,
    /// How often it was entered.
    pub visits: u64,
    /// Instructions; a repeated string instruction counts once.
    pub instructions: u64,
    /// Atomic read-modify-write instructions among them, those that are fences aside.
    pub locked: u64,
    /// Full fences among them: `mfence`, or a locked `or` of 0 to the own stack.
    pub fences: u64,
    /// System calls among them.
    pub syscalls: u64,
    /// Calls of the global allocator that may take memory.
    pub allocations: u64,
    /// Calls of the global allocator that give memory back.
    pub frees: u64,
    /// Where the first locked instructions, system calls and allocations stand.
    pub offences: Vec<Offence>,
}

/// The location of an instruction that a hot path should not execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// "locked", "syscall", "allocation" or "free".
    pub what: &'static str,
    /// File and offset in it, as `addr2line` and `objdump` take them.
    pub place: String,
}

/// The counts of a workload, one per phase, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted(pub Vec<Phase>);

impl Counted {
    /// The phase of this name.
    ///
    /// # Panics
    /// Panics if the workload has no such phase, which is a mistake of the caller.
    pub fn phase(&self, name: &str) -> &Phase {
        let found = self.0.iter().find(|phase| phase.name == name);
        found.unwrap_or_else(|| panic!("the workload has no phase `{name}`"))
    }
}

/// Why a workload could not be counted.
#[derive(Debug, Error)]
pub enum CountError {
    /// The counted process could not be started or read.
    #[error("cannot {what} the counted process: {source}")]
    Process {
        /// The operation that failed.
        what: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The counted process ended, or was ended, before the last mark.
    #[error("workload `{workload}` {state} before it reached its end mark")]
    Ended {
        /// Its name.
        workload: &'static str,
        /// How it ended.
        state: String,
    },
    /// A phase was entered that has no name.
    #[error("workload `{workload}` marks phase {index}, but names only {named} phases")]
    UnknownPhase {
        /// Its name.
        workload: &'static str,
        /// The phase it marked.
        index: u16,
        /// How many it names.
        named: usize,
    },
    /// Bytes that are not an instruction.
    #[error("invalid instruction at {address:#x}")]
    NoInstruction {
        /// Its address.
        address: u64,
    },
    /// The workload does not reach its end mark.
    #[error("workload `{workload}` did not reach its end mark within {MOST_STEPS} instructions")]
    Endless {
        /// Its name.
        workload: &'static str,
    },
}

impl CountError {
    fn during(what: &'static str) -> impl Fn(Errno) -> CountError {
        move |errno| CountError::Process { what, source: errno.into() }
    }
}

/// Runs the workload named by the environment, if there is one. Call it first in `main`.
pub fn run_workload(workloads: &[Workload]) -> Option<ExitCode> {
    let name = env::var(VARIABLE).ok()?;
    match workloads.iter().find(|workload| workload.name == name) {
        Some(workload) => {
            (workload.run)();
            Some(ExitCode::SUCCESS)
        }
        None => {
            eprintln!("unknown workload {VARIABLE}={name}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Starts `program` again to run `workload`, steps it, and returns what each phase executed. Both
/// processes share `core`, which makes a step cheap (a few microseconds).
///
/// # Errors
/// See [`CountError`]. The counted process is gone afterwards in every case.
pub fn count(
    workload: &Workload,
    program: &std::path::Path,
    core: usize,
) -> Result<Counted, CountError> {
    let counted = on_core(core, || {
        // The thread that starts the process is the one that may step it.
        let mut command = Command::new(program);
        command.env(VARIABLE, workload.name).stdin(Stdio::null());
        let mut child =
            command.spawn().map_err(|source| CountError::Process { what: "start", source })?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let counted = Stepper::meet(workload, pid).and_then(Stepper::run);
        if counted.is_err() {
            let _ = child.kill();
        }
        // If it was reaped already, a second wait returns an error without meaning.
        let _ = child.wait();
        counted
    });
    counted.map_err(|source| CountError::Process { what: "pin", source })?
}

struct Stepper<'a> {
    workload: &'a Workload,
    pid: Pid,
    memory: File,
    known: HashMap<u64, Kind>,
    phases: Vec<Phase>,
    current: Option<usize>,
}

impl<'a> Stepper<'a> {
    /// Waits for the workload to begin. Its memory is opened only then: what a process that has
    /// just been started shows is not yet the program.
    fn meet(workload: &'a Workload, pid: Pid) -> Result<Self, CountError> {
        wait_for(Signal::SIGSTOP, workload, pid)?;
        let memory = File::open(format!("/proc/{pid}/mem"))
            .map_err(|source| CountError::Process { what: "read", source })?;
        let named = |name: &&str| Phase { name: (*name).to_owned(), ..Phase::default() };
        let phases = workload.phases.iter().map(named).collect();
        Ok(Stepper { workload, pid, memory, known: HashMap::new(), phases, current: None })
    }

    fn run(mut self) -> Result<Counted, CountError> {
        let mut repeating = None;
        for _ in 0..MOST_STEPS {
            let at =
                ptrace::getregs(self.pid).map_err(CountError::during("read the registers of"))?.rip;
            let kind = self.look(at)?;
            match kind.mark {
                Some(END) => return self.finish(),
                Some(mark) => self.mark(mark, at)?,
                None if repeating == Some(at) => {}
                None => self.add(kind, at),
            }
            repeating = kind.repeats.then_some(at);
            ptrace::step(self.pid, None).map_err(CountError::during("step"))?;
            wait_for(Signal::SIGTRAP, self.workload, self.pid)?;
        }
        Err(CountError::Endless { workload: self.workload.name })
    }

    fn look(&mut self, at: u64) -> Result<Kind, CountError> {
        if let Some(&kind) = self.known.get(&at) {
            return Ok(kind);
        }
        let mut bytes = [0; LONGEST];
        // Less than the longest instruction may be left in front of an unmapped page.
        let mut length = LONGEST;
        while length > 0 && self.memory.read_exact_at(&mut bytes[..length], at).is_err() {
            length -= 1;
        }
        let kind = kind(&bytes[..length]).ok_or(CountError::NoInstruction { address: at })?;
        self.known.insert(at, kind);
        Ok(kind)
    }

    fn mark(&mut self, mark: u16, at: u64) -> Result<(), CountError> {
        match mark {
            PAUSE => self.current = None,
            ALLOCATED | FREED => {
                if let Some(current) = self.current {
                    let phase = &mut self.phases[current];
                    let what = if mark == ALLOCATED {
                        phase.allocations += 1;
                        "allocation"
                    } else {
                        phase.frees += 1;
                        "free"
                    };
                    self.remember(what, at);
                }
            }
            index if usize::from(index) < self.phases.len() => {
                self.current = Some(usize::from(index));
                self.phases[usize::from(index)].visits += 1;
            }
            index => {
                let named = self.phases.len();
                let workload = self.workload.name;
                return Err(CountError::UnknownPhase { workload, index, named });
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: Kind, at: u64) {
        let Some(current) = self.current else { return };
        let phase = &mut self.phases[current];
        phase.instructions += 1;
        phase.fences += u64::from(kind.fence);
        if kind.locked {
            phase.locked += 1;
            self.remember("locked", at);
        } else if kind.syscall {
            phase.syscalls += 1;
            self.remember("syscall", at);
        }
    }

    fn remember(&mut self, what: &'static str, at: u64) {
        let Some(current) = self.current else { return };
        if self.phases[current].offences.len() < MOST_OFFENCES {
            let place = place(self.pid, at);
            self.phases[current].offences.push(Offence { what, place });
        }
    }

    fn finish(self) -> Result<Counted, CountError> {
        ptrace::detach(self.pid, None).map_err(CountError::during("detach from"))?;
        match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(_, 0)) => Ok(Counted(self.phases)),
            Ok(other) => Err(CountError::Process {
                what: "finish",
                source: io::Error::other(format!("unexpected state after its end mark: {other:?}")),
            }),
            Err(errno) => Err(CountError::during("wait for")(errno)),
        }
    }
}

fn wait_for(wanted: Signal, workload: &Workload, pid: Pid) -> Result<(), CountError> {
    let state = match waitpid(pid, Some(WaitPidFlag::__WALL)) {
        Ok(WaitStatus::Stopped(_, signal)) if signal == wanted => return Ok(()),
        Ok(WaitStatus::Stopped(_, signal) | WaitStatus::Signaled(_, signal, _)) => {
            format!("got {signal}")
        }
        Ok(WaitStatus::Exited(_, code)) => format!("exited with {code}"),
        Ok(other) => format!("had the unexpected state {other:?}"),
        Err(errno) => return Err(CountError::during("wait for")(errno)),
    };
    Err(CountError::Ended { workload: workload.name, state })
}

/// The file that is mapped at `at` and the offset in it; the address alone if no file is mapped
/// there.
fn place(pid: Pid, at: u64) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let found = maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let inside = (start..u64::from_str_radix(end, 16).ok()?).contains(&at);
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let file = fields.nth(2)?;
        inside.then(|| format!("{file}+{:#x}", at - start + offset))
    });
    found.unwrap_or_else(|| format!("{at:#x}"))
}

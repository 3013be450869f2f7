//! The helper processes of cases, which run this same program in a role.
//!
//! A case that needs a second process starts its own executable again with the name of a role in
//! the environment; `main` calls [`run_role`] before anything else. A role runs until its
//! standard input closes, a pipe that the case holds open, so no role outlives its case.

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::measure::cores::spawn_on;

const VARIABLE: &str = "BENCH_ROLE";

/// How long a role may take to print its first line: a hundred times as long as in an emulated guest, so one
/// that hangs is the failure of its case, and does not hold up the others.
const FIRST_LINE: Duration = Duration::from_secs(120);

/// A helper process that this program can run as.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Its name in the environment.
    pub name: &'static str,
    /// Its main function, which runs until its lifeline closes.
    pub run: fn(Lifeline) -> ExitCode,
}

/// Tells a role whether the case that started it still runs.
///
/// Standard input is read from the first call on; a role that never calls it can use standard input
/// itself.
#[derive(Debug, Default)]
pub struct Lifeline(OnceLock<Arc<AtomicBool>>);

impl Lifeline {
    /// True once the case has ended.
    ///
    /// # Panics
    /// If no thread can be started to watch the lifeline.
    pub fn is_closed(&self) -> bool {
        self.0.get_or_init(watched).load(Relaxed)
    }
}

fn watched() -> Arc<AtomicBool> {
    let line = Arc::new(AtomicBool::new(false));
    let cut = line.clone();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        cut.store(true, SeqCst);
    });
    line
}

/// Runs the role named by the environment, if there is one. Call it first in `main`.
pub fn run_role(roles: &[Role]) -> Option<ExitCode> {
    let name = env::var(VARIABLE).ok()?;
    let Some(role) = roles.iter().find(|role| role.name == name) else {
        eprintln!("unknown role {VARIABLE}={name}");
        return Some(ExitCode::FAILURE);
    };
    Some((role.run)(Lifeline::default()))
}

/// This program, to be started again in `role`.
///
/// # Errors
/// When its executable is gone.
pub fn command(role: Role) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.env(VARIABLE, role.name);
    Ok(command)
}

/// A process in a role; dropping it closes its lifeline and waits for its end.
#[derive(Debug)]
pub struct RoleProcess {
    child: Child,
    line: Option<ChildStdin>,
}

impl RoleProcess {
    /// Starts this program again in `role`, pinned to `core` if one is given, with further
    /// environment variables. Its standard output is a pipe, see [`RoleProcess::first_line`].
    ///
    /// # Errors
    /// When the process cannot be started or pinned.
    pub fn spawn(
        role: Role,
        core: Option<usize>,
        variables: &[(&str, OsString)],
    ) -> io::Result<RoleProcess> {
        let mut command = command(role)?;
        command.envs(variables.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match core {
            Some(core) => spawn_on(core, &mut command)?,
            None => command.spawn()?,
        };
        let line = child.stdin.take();
        Ok(RoleProcess { child, line })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the first line that the role prints when it is ready.
    ///
    /// # Errors
    /// If it ends without printing a line, or prints none in two minutes.
    pub fn first_line(&mut self) -> io::Result<String> {
        self.line_within(FIRST_LINE)
    }

    fn line_within(&mut self, limit: Duration) -> io::Result<String> {
        let Some(output) = self.child.stdout.as_mut() else {
            return Err(io::Error::other("the role's first line was already read"));
        };
        let start = Instant::now();
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            let left = limit.saturating_sub(start.elapsed());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut files = [PollFd::new(output, PollFlags::IN)];
            if rustix::io::retry_on_intr(|| poll(&mut files, Some(&timeout)))? == 0 {
                let text = format!("a role printed no line in {limit:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            if output.read(&mut byte)? == 0 {
                break;
            }
            if byte[0] == b'\n' {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            line.push(byte[0]);
        }
        Err(io::Error::other(format!(
            "a role exited before it was ready: {:?}",
            self.child.wait()?
        )))
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        self.line.take();
        // A role that ignores its lifeline is killed; a destructor cannot report errors.
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(program: &str, argument: &str) -> RoleProcess {
        let mut command = Command::new(program);
        command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect(program);
        let line = child.stdin.take();
        RoleProcess { child, line }
    }

    #[test]
    fn a_role_that_prints_nothing_is_not_waited_for_for_ever() {
        let mut role = role("sleep", "60");
        let error = role.line_within(Duration::from_millis(20)).expect_err("no line");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn the_first_line_of_a_role_is_read() {
        assert_eq!(role("echo", "ready").first_line().expect("a line"), "ready");
        let error = role("true", "").first_line().expect_err("no line");
        assert!(error.to_string().contains("exited"), "{error}");
    }
}

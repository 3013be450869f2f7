//! The other processes that cases need, played by this same program.
//!
//! A case that needs a second process starts its own executable again with the name of a role in
//! the environment; `main` calls [`play`] before anything else. A role lives as long as the pipe
//! that the case holds open on its standard input, so none outlives a case that died.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::measure::cores::spawn_on;

const VARIABLE: &str = "BENCH_ROLE";

/// Something that this program can be instead of itself.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// How the environment names it.
    pub name: &'static str,
    /// What it does until its life line is cut.
    pub run: fn(LifeLine) -> ExitCode,
}

/// Tells a role whether the case that started it still wants it.
///
/// Standard input is read from the first time that the role asks on; one that ends by itself and
/// never asks may use it otherwise.
#[derive(Debug, Default)]
pub struct LifeLine(OnceLock<Arc<AtomicBool>>);

impl LifeLine {
    /// True once the case has gone.
    ///
    /// # Panics
    /// When no thread can be started to watch the life line.
    pub fn cut(&self) -> bool {
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

/// Plays the role that the environment names, if it names one. Call it first in `main`.
pub fn play(roles: &[Role]) -> Option<ExitCode> {
    let name = env::var(VARIABLE).ok()?;
    let Some(role) = roles.iter().find(|role| role.name == name) else {
        eprintln!("{VARIABLE}={name}: this program has no such role");
        return Some(ExitCode::FAILURE);
    };
    Some((role.run)(LifeLine::default()))
}

/// A process playing a role; dropping it cuts its life line and waits for its end.
#[derive(Debug)]
pub struct Player {
    child: Child,
    line: Option<ChildStdin>,
}

impl Player {
    /// Starts this program again in `role`, pinned to `core` if one is given, with further
    /// environment variables. Its standard output is a pipe, see [`Player::first_line`].
    ///
    /// # Errors
    /// When the process cannot be started or pinned.
    pub fn start(
        role: Role,
        core: Option<usize>,
        variables: &[(&str, OsString)],
    ) -> io::Result<Player> {
        let mut command = Command::new(env::current_exe()?);
        command.env(VARIABLE, role.name).envs(variables.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match core {
            Some(core) => spawn_on(core, &mut command)?,
            None => command.spawn()?,
        };
        let line = child.stdin.take();
        Ok(Player { child, line })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the first line that the role prints, its way to say that it is ready.
    ///
    /// # Errors
    /// When it ends without having said anything.
    pub fn first_line(&mut self) -> io::Result<String> {
        let Some(output) = self.child.stdout.as_mut() else {
            return Err(io::Error::other("the role's first line has been read before"));
        };
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte)? == 1 {
            if byte[0] == b'\n' {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            line.push(byte[0]);
        }
        Err(io::Error::other(format!("a role ended before it was ready: {:?}", self.child.wait()?)))
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.line.take();
        // A role that does not heed its line is ended; a destructor has nobody to tell an error.
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

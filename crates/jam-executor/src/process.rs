//! [`Process`]: the process of an executor, from its start to its end.
//!
//! Its descriptors are the memory (0, closed in its setup), one end of a socket (1), and the reading
//! end of a pipe (2) that carries no data. The kernel kills it when the pipe's last writing end is
//! closed, which this process has: by dropping this, or by ending in whatever way.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::image::{DEADLINE_SIGNAL, Image};
use crate::layout::call;

/// How long the process may take for its setup, and for noting where it was at the deadline.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// A process that waits for a call, or runs one.
pub(crate) struct Process {
    child: Child,
    socket: UnixStream,
    /// The process ends when this is closed.
    _life: PipeWriter,
}

/// How a wait has ended.
pub(crate) enum Wait {
    /// The call has ended.
    Ended,
    /// The process has.
    Exited(Option<ExitStatus>),
    /// Neither, in time.
    Deadline,
}

/// Why a process did not start.
#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) step: &'static str,
    pub(crate) source: io::Error,
}

impl Process {
    /// Executes `program`, a file with the bytes of `image`, with this memory, whose part `call` shows
    /// the steps of the setup.
    pub(crate) fn start(
        program: &File,
        image: &Image,
        memory: &File,
        call: &SharedBytes,
    ) -> Result<Process, NotStarted> {
        let failed = |step| move |source| NotStarted { step, source };
        let (socket, theirs) = UnixStream::pair().map_err(failed("make a socket"))?;
        let (alive, life) = io::pipe().map_err(failed("make a pipe"))?;
        let memory = memory.try_clone().map_err(failed("duplicate a descriptor"))?;
        let alive_there = alive.try_clone().map_err(failed("duplicate a descriptor"))?;
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.arg0("jam-executor").env_clear().stdin(Stdio::from(OwnedFd::from(memory)));
        command.stdout(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::from(alive_there));
        let child = command.spawn().map_err(failed("execute its program"))?;
        drop(command);
        let mut process = Process { child, socket, _life: life };
        process.dies_with(&alive).map_err(failed("tie its end to this process"))?;
        drop(alive);
        let deadline = Some(Instant::now() + REPORT_TIMEOUT);
        match process.wait(deadline).map_err(failed("wait for its setup"))? {
            Wait::Ended => Ok(process),
            Wait::Deadline => Err(NotStarted {
                step: "finish its setup",
                source: io::Error::from(ErrorKind::TimedOut),
            }),
            Wait::Exited(status) => {
                let made = call.word32(call::PROGRESS).load(Ordering::Acquire) as usize;
                let source = match status.and_then(|status| status.code()) {
                    Some(error) => io::Error::from_raw_os_error(error),
                    None => io::Error::other(format!("its process ended: {status:?}")),
                };
                let step = image.steps.get(made).copied().unwrap_or("finish its setup");
                Err(NotStarted { step, source })
            }
        }
    }

    /// Has the kernel kill the process when the last writing end of the pipe is closed.
    fn dies_with(&self, alive: &PipeReader) -> io::Result<()> {
        let pipe = alive.as_raw_fd();
        let set = |command, value: i32| {
            // SAFETY: a call about a descriptor that is open; the process has not been waited for, so
            // its number is its own.
            let done = unsafe { libc::fcntl(pipe, command, value) };
            if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        // These belong to the open pipe, which the process has too.
        set(libc::F_SETOWN, self.child.id() as i32)?;
        set(F_SETSIG, libc::SIGKILL)?;
        set(libc::F_SETFL, libc::O_ASYNC)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has it run what the request says, and waits as `wait` does.
    pub(crate) fn call(&mut self, deadline: Option<Instant>) -> io::Result<Wait> {
        match self.socket.write_all(&[1]) {
            // It has ended, and `wait` finds out how.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written?,
        }
        self.wait(deadline)
    }

    /// Waits until the call or the process ends, or until the deadline, if there is one.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> io::Result<Wait> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Wait::Deadline);
            }
            self.socket.set_read_timeout(left)?;
            match self.socket.read(&mut [0]) {
                Ok(0) => return Ok(Wait::Exited(self.end())),
                Ok(_) => return Ok(Wait::Ended),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    ErrorKind::ConnectionReset => return Ok(Wait::Exited(self.end())),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Has it note where it is, and ends it.
    pub(crate) fn interrupt(&mut self) {
        // SAFETY: a signal to a child that has not been waited for, so its number is its own.
        unsafe { libc::kill(self.child.id() as i32, DEADLINE_SIGNAL) };
        // It exits then; if not, this is what ends it.
        let _ = self.wait(Some(Instant::now() + REPORT_TIMEOUT));
        self.end();
    }

    /// Ends it; how it ended, if the program has not waited for all of its children itself.
    fn end(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        // The socket is closed by the process's end, a moment before it has a status.
        let exits = self.socket.read(&mut [0]).is_ok_and(|bytes| bytes == 0);
        if !exits {
            let _ = self.child.kill();
        }
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As in `fcntl.h`: libc has no name for it.
const F_SETSIG: i32 = 10;

/// The signal that ended a process.
pub(crate) fn signal_of(status: Option<ExitStatus>) -> Option<i32> {
    status.and_then(|status| status.signal())
}

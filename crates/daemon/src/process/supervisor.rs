//! The supervisor: a small process between the daemon and a process of a job, which ensures that
//! nothing is left behind, whichever process is killed.
//!
//! ```text
//!   gossamerd ──socket── supervisor ──── program ──── what it starts
//! ```
//!
//! - The daemon dies, even by SIGKILL: its end of the socket closes, and the supervisor kills all its
//!   own descendants. It is a *subreaper*, so orphans of the program become its children, whatever
//!   session they are in.
//! - The program ends: the supervisor kills the processes that it left, reports to the daemon, and
//!   exits, even if some process cannot be killed.
//! - The supervisor is killed: the kernel kills the program (`PR_SET_PDEATHSIG`). The daemon is a
//!   subreaper too, and kills the orphans that it inherits ([`strays`](kill::strays)).
//! - If the daemon has a cgroup, each program runs in its own child cgroup, whose processes the kernel
//!   kills at once (`cgroup`).
//!
//! The program is started in two steps. The supervisor starts the daemon's binary again as its
//! [`step`], which makes a session, ties its life to the supervisor's, and becomes the program. So no
//! code runs between `fork` and `exec`, where almost nothing is allowed, and no `unsafe` is needed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use daemon_protocol::frame::{self, Decoder};
use gossamer_job::{JOB_FD, LISTEN_FD, PACKAGES_FD, STATISTICS_FD};
use rustix::cmsg_space;
use rustix::io::FdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::process::cgroup::Cgroup;
use crate::process::kill::{self, Look, Process};
use crate::process::open_files;

/// The hidden command that makes a daemon's binary a supervisor.
pub(crate) const SUPERVISOR: &str = "supervisor";
/// The hidden command that makes it the step between the supervisor and the program.
pub(crate) const STEP: &str = "step";

/// This program, also when its file was replaced meanwhile.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// How long the supervisor waits for killed processes to end. A process that waits for a disk or a
/// network file system ends only when that answers.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long to try to start a program whose file is still open for writing in a process that is
/// just being started.
const BUSY: Duration = Duration::from_secs(2);

/// The program that a supervisor starts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The cgroup in which the program runs, if the daemon has cgroups.
    pub(crate) cgroup: Option<Cgroup>,
    /// Its name, and its arguments.
    pub(crate) arguments: Vec<String>,
    /// Its environment, except for the variables with descriptor numbers.
    pub(crate) environment: Vec<(String, String)>,
    /// Its working directory.
    pub(crate) directory: String,
    /// How many descriptors it may have open; no limit if not set.
    pub(crate) open_files: Option<u64>,
}

/// The descriptors that a program is started with.
pub(crate) struct Descriptors {
    /// Its file, open for reading, verified.
    pub(crate) program: OwnedFd,
    /// Its job description.
    pub(crate) job: OwnedFd,
    /// The socket that it listens on.
    pub(crate) listener: OwnedFd,
    /// The socket to which it reports the statistics of its threads.
    pub(crate) statistics: OwnedFd,
    /// The socket over which packages come.
    pub(crate) packages: OwnedFd,
    /// Its standard input.
    pub(crate) input: OwnedFd,
}

/// Messages of a daemon to a supervisor, after [`Launch`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSupervisor {
    /// Send the program and its group this signal.
    Signal(i32),
    /// Kill everything.
    Kill,
}

/// Messages of a supervisor to its daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromSupervisor {
    /// The program runs, under this number.
    Started(u32),
    /// It cannot be started.
    Failed(String),
    /// It has ended by itself.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
}

/// Hands a supervisor the descriptors of its program. To be done before anything else is sent.
pub(crate) fn send_descriptors(socket: &UnixStream, what: &Descriptors) -> io::Result<()> {
    let Descriptors { program, job, listener, statistics, packages, input } = what;
    send_files(socket, &[program, job, listener, statistics, packages, input].map(AsFd::as_fd))
}

fn receive_descriptors(socket: &UnixStream) -> io::Result<Descriptors> {
    let [program, job, listener, statistics, packages, input] = receive_files(socket)?;
    Ok(Descriptors { program, job, listener, statistics, packages, input })
}

/// The most files that are sent at once.
const FILES: usize = 6;

fn send_files(socket: &UnixStream, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives files with close-on-exec set, so that no program inherits them by accident.
fn receive_files<const N: usize>(socket: &UnixStream) -> io::Result<[OwnedFd; N]> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<OwnedFd> = rights.flatten().collect();
    <[OwnedFd; N]>::try_from(files).map_err(|files| {
        io::Error::other(format!("received {} descriptors, expected {N}", files.len()))
    })
}

/// Runs a supervisor, whose standard input is the socket to the daemon, and whose standard output and
/// error are those of the program.
pub(crate) fn run() -> ExitCode {
    match supervise() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The daemon sees the socket close, and shows this message.
            let _ = writeln!(io::stderr(), "gossamer: cannot supervise a process: {error}");
            ExitCode::FAILURE
        }
    }
}

fn supervise() -> io::Result<()> {
    // Away from the daemon's terminal and its Ctrl-C. A supervisor that leads a session already has
    // been started by hand.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let descriptors = receive_descriptors(&socket)?;
    let mut orders = Orders { socket: socket.try_clone()?, decoder: Decoder::default() };
    let Some(launch) = orders.next()? else { return Ok(()) };
    let program = match start(&launch, descriptors) {
        Ok(program) => program,
        Err(error) => {
            return report(&socket, &FromSupervisor::Failed(error.to_string()));
        }
    };
    // Closed here, so that the pipes end with the program and its descendants.
    let nothing = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    // The thread below notices that the daemon has ended.
    let _ = report(&socket, &FromSupervisor::Started(program.as_raw_nonzero().get() as u32));
    let cgroup = launch.cgroup;
    let same = cgroup.clone();
    thread::Builder::new().spawn(move || {
        follow(&mut orders, program);
        kill_descendants(cgroup.as_ref(), <[_]>::is_empty);
        if kill::descendants()
            .is_ok_and(|left| left.iter().any(|p| p.pid == program.as_raw_nonzero().get()))
        {
            // It will not be reaped. The closing socket makes the daemon continue without it.
            std::process::exit(1);
        }
    })?;
    reap(&socket, program, same.as_ref());
    Ok(())
}

/// Starts the program through [`step`], which receives the program's file and input over its own
/// standard input.
fn start(launch: &Launch, descriptors: Descriptors) -> io::Result<Pid> {
    let Descriptors { program, job, listener, statistics, packages, input } = descriptors;
    let Some((name, arguments)) = launch.arguments.split_first() else {
        return Err(io::Error::other("the program has no name"));
    };
    if let Err(error) = std::fs::read_dir(&launch.directory) {
        return Err(io::Error::other(format!(
            "cannot use the directory {}: {error}",
            launch.directory
        )));
    }
    open_files::restore(launch.open_files)?;
    let mut command = Command::new(THIS_PROGRAM);
    let cgroup = launch.cgroup.as_ref().map_or(Path::new(""), Cgroup::path);
    command.arg0(name).arg(STEP).arg(std::process::id().to_string()).arg(cgroup);
    let (ours, theirs) = UnixStream::pair()?;
    send_files(&ours, &[program.as_fd(), input.as_fd()])?;
    command.arg(name).args(arguments).current_dir(&launch.directory);
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    command.env_clear().envs(launch.environment.iter().map(|(name, value)| (name, value)));
    for (variable, file) in [
        (JOB_FD, job.as_fd()),
        (LISTEN_FD, listener.as_fd()),
        (STATISTICS_FD, statistics.as_fd()),
        (PACKAGES_FD, packages.as_fd()),
    ] {
        // This process starts no other child that could inherit it.
        inherit(file)?;
        command.env(variable, file.as_raw_fd().to_string());
    }
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

fn inherit(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(file, FdFlags::empty())?)
}

/// The messages of the daemon.
struct Orders {
    socket: UnixStream,
    decoder: Decoder,
}

impl Orders {
    /// The next message; `None` when the daemon has ended.
    fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(message) = self.decoder.decode().map_err(io::Error::other)? {
                return Ok(Some(message));
            }
            match self.socket.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(bytes) => self.decoder.push(&chunk[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn report(mut socket: &UnixStream, message: &FromSupervisor) -> io::Result<()> {
    socket.write_all(&frame::encode(message).map_err(io::Error::other)?)
}

/// Carries out the daemon's orders until it orders to kill the program, or ends.
fn follow(orders: &mut Orders, program: Pid) {
    while let Ok(Some(ToSupervisor::Signal(number))) = orders.next() {
        let Some(signal) = Signal::from_named_raw(number) else { continue };
        let program = program.as_raw_nonzero().get();
        let found = kill::descendants().unwrap_or_default();
        for process in found.iter().filter(|p| p.pid == program || p.group == program) {
            // A process that cannot be signalled is killed later, unless it ends.
            let _ = process.signal(signal);
        }
    }
}

/// Kills the descendants of this process until `is_over` is true of the living ones. Ignores those
/// that it cannot kill.
fn kill_descendants(cgroup: Option<&Cgroup>, is_over: impl Fn(&[Process]) -> bool) {
    // No process can leave the cgroup meanwhile. If this fails, the loop below remains.
    let _ = cgroup.map(Cgroup::kill);
    let _ = kill::kill_all(TIMEOUT, || {
        let alive = kill::descendants()?;
        Ok(Look { is_over: is_over(&alive), alive })
    });
}

/// Reaps every process that ends, until the program has.
fn reap(socket: &UnixStream, program: Pid, cgroup: Option<&Cgroup>) {
    let status = loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => break status,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    };
    // Reported last, so that the daemon can rely on everything having ended.
    kill_descendants(cgroup, |_| has_no_child());
    let ending = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => FromSupervisor::Exited(code),
        (None, signal) => FromSupervisor::Killed(signal.unwrap_or_default()),
    };
    let _ = report(socket, &ending);
}

/// Reaps ended children. Returns whether this process has no child left: then it has no descendant
/// either, because orphans become its children.
fn has_no_child() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Runs the step between a supervisor and a program: makes a session, ties its life to that of process
/// `supervisor`, joins `cgroup` if that is not empty, and becomes the program whose file it receives.
pub(crate) fn step(
    supervisor: i32,
    cgroup: &Path,
    name: &OsStr,
    arguments: &[OsString],
) -> ExitCode {
    let error = become_program(supervisor, cgroup, name, arguments);
    let _ = writeln!(io::stderr(), "gossamer: cannot start {}: {error}", name.display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

fn become_program(
    supervisor: i32,
    cgroup: &Path,
    name: &OsStr,
    arguments: &[OsString],
) -> io::Error {
    let prepare = || {
        rustix::process::setsid()?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let [program, input] = receive_files(&socket)?;
        rustix::stdio::dup2_stdin(input)?;
        let program = File::from(program);
        if is_script(&program)? {
            // The interpreter of a script opens the file again, by the number of the descriptor.
            inherit(program.as_fd())?;
        }
        Ok(program)
    };
    let program = match prepare() {
        Ok(program) => program,
        Err(error) => return error,
    };
    // It may have died before the tie was made.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(supervisor) {
        return io::Error::other("its supervisor has ended");
    }
    if !cgroup.as_os_str().is_empty()
        && let Err(error) = Cgroup::at(cgroup).join()
    {
        let text = format!("cannot join the cgroup {}: {error}", cgroup.display());
        return io::Error::other(text);
    }
    // The verified file itself: its name may refer to another file by now.
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    let deadline = Instant::now() + BUSY;
    loop {
        let error = Command::new(&path).arg0(name).args(arguments).exec();
        if error.kind() != io::ErrorKind::ExecutableFileBusy || Instant::now() >= deadline {
            return error;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a program begins with the name of its interpreter.
fn is_script(program: &File) -> io::Result<bool> {
    let mut start = [0; 2];
    Ok(program.read_at(&mut start, 0)? == 2 && &start == b"#!")
}

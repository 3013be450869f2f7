//! [`Supervised`]: the daemon's handle to a process of a job and its supervisor.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use daemon_protocol::frame;
use gossamer_job::JobDescription;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixDatagram;
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::connection::{ConnectionError, Receiver};
use crate::process::kill::MARK;
use crate::process::supervisor::{
    self, Descriptors, FromSupervisor, Launch, SUPERVISOR, THIS_PROGRAM, ToSupervisor,
};
use crate::process::supervisors::Supervisors;

/// How long a supervisor may take to start a program. It waits for the disk only.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A program was not started.
#[derive(Debug, Error)]
pub(crate) enum SuperviseError {
    #[error("cannot start a supervisor for the program")]
    Supervisor(#[from] io::Error),
    #[error("the supervisor of the program does not answer")]
    Silent(#[from] ConnectionError),
    #[error("cannot start the program: {0}")]
    Failed(String),
}

/// A process of a job with its supervisor. If this is dropped, the supervisor kills the process and
/// ends.
pub(crate) struct Supervised {
    /// The number of the process.
    pub(crate) pid: u32,
    /// Ends when the supervisor has ended.
    pub(crate) supervisor: JoinHandle<()>,
    /// How the process ends; closed when the supervisor has ended.
    pub(crate) events: mpsc::Receiver<FromSupervisor>,
    /// Orders for the supervisor.
    pub(crate) orders: mpsc::UnboundedSender<ToSupervisor>,
    /// The standard output of the process.
    pub(crate) output: ChildStdout,
    /// The standard error of the process.
    pub(crate) errors: ChildStderr,
    /// The socket to which it reports its statistics.
    pub(crate) statistics: UnixDatagram,
    /// The socket over which packages come into it.
    pub(crate) packages: tokio::net::UnixStream,
    /// The standard input of the process, if it comes from the controller.
    pub(crate) input: Option<pipe::Sender>,
}

/// Starts a verified program under a supervisor.
pub(crate) async fn start(
    supervisors: &Supervisors,
    program: File,
    launch: &Launch,
    mark: &str,
    description: &JobDescription,
    listener: TcpListener,
    with_input: bool,
) -> Result<Supervised, SuperviseError> {
    let (theirs, input) = if with_input {
        let (theirs, ours) = io::pipe()?;
        (OwnedFd::from(theirs), Some(pipe::Sender::from_owned_fd(ours.into())?))
    } else {
        (File::open("/dev/null")?.into(), None)
    };
    let job = sealed(description.to_json().as_bytes())?;
    let (statistics, reports) = UnixDatagram::pair()?;
    let reports = OwnedFd::from(reports.into_std()?);
    let (packages, brought) = UnixStream::pair()?;
    packages.set_nonblocking(true)?;
    let packages = tokio::net::UnixStream::from_std(packages)?;
    let brought = OwnedFd::from(brought);
    let listener = listener.into();
    let program = program.into();
    let descriptors = Descriptors {
        program,
        job,
        listener,
        statistics: reports,
        packages: brought,
        input: theirs,
    };

    let (socket, theirs) = UnixStream::pair()?;
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0("gossamer-supervisor").arg(SUPERVISOR).env(MARK, mark);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let starting = supervisors.clone();
    // Blocks while another task scans for strays.
    // Drops the command's copy of the supervisor's end, which would keep the socket open.
    let started = spawn_blocking(move || starting.start(&mut command));
    let mut child = started.await.map_err(io::Error::other)??;
    let output = child.stdout.take();
    let errors = child.stderr.take();
    let supervisor = supervisors.wait(child);
    supervisor::send_descriptors(&socket, &descriptors)?;
    drop(descriptors);
    socket.set_nonblocking(true)?;
    let (reading, mut writing) = tokio::net::UnixStream::from_std(socket)?.into_split();
    let first = frame::encode(launch).map_err(io::Error::other)?;
    writing.write_all(&first).await?;
    let mut reading = Receiver::new(reading);
    let pid = match reading.receive(TIMEOUT).await? {
        FromSupervisor::Started(pid) => pid,
        FromSupervisor::Failed(reason) => return Err(SuperviseError::Failed(reason)),
        FromSupervisor::Exited(_) | FromSupervisor::Killed(_) => {
            return Err(SuperviseError::Failed("it ended before it was started".into()));
        }
    };

    let (happened, events) = mpsc::channel(1);
    tokio::spawn(async move {
        // No timeout: a process may run forever.
        while let Ok(event) = reading.receive(Duration::MAX).await {
            if happened.send(event).await.is_err() {
                return;
            }
        }
    });
    let (orders, mut ordered) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        // Dropping the writing half makes the supervisor end.
        while let Some(order) = ordered.recv().await {
            let Ok(bytes) = frame::encode::<ToSupervisor>(&order) else { continue };
            if writing.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let missing = || io::Error::other("a pipe of the supervisor is missing");
    let (output, errors) = (output.ok_or_else(missing)?, errors.ok_or_else(missing)?);
    Ok(Supervised { pid, supervisor, events, orders, output, errors, statistics, packages, input })
}

/// A file in memory, sealed against changes.
fn sealed(content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("gossamer-job", flags)?);
    file.write_all(content)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, all)?;
    Ok(file.into())
}

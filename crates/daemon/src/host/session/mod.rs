//! The daemon's side of [`Request::Run`](crate::protocol::Request::Run): from the request to the
//! last byte of output (`supervise.rs`, once the process runs).
//!
//! Some tasks share a conversation. One reads what the controller says, one writes what is sent to
//! it, one for each of the process's outputs reads that. [`run`] and what it calls decide. None of
//! them waits for a controller that does not print or a process that does not read: what is on its
//! way to either is bounded by a window, and so the word that something has ended always gets
//! through.

mod supervise;

use crate::{
    host::{daemon::Daemon, jobs::Job, state::State, store},
    process::{
        cgroup::Cgroup,
        kill,
        supervised::{Kept, KeptError, start},
        supervisor::Launch,
    },
    protocol::{
        ALIVE_EVERY, FromController, FromDaemon, Limits, RunRequest, SILENCE, ToldBy,
        connection::{ConnectionError, Receiver, Sender},
    },
    security::identity::Member,
};
use gossamer_job::{JobDescription, JobError};
use std::{
    fs::File,
    future::pending,
    io,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::timeout,
};

/// How long a controller may take from preparing a host to starting it: others may be receiving a
/// large program.
const PREPARED_FOR: Duration = Duration::from_secs(600);
/// How long what is left of a process may take to be gone when it is killed.
const LEFT: Duration = Duration::from_secs(60);
/// Messages of the controller that wait for being acted on.
const QUEUE: usize = 16;

/// Why a process was not run.
#[derive(Debug, Error)]
pub(crate) enum NotRun {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("the controller said what it should not now")]
    OutOfTurn,
    #[error(transparent)]
    Admission(#[from] crate::host::jobs::NotAdmitted),
    #[error(transparent)]
    Store(#[from] crate::host::store::StoreError),
    #[error("cannot listen at {0}: {1}")]
    Listen(std::net::IpAddr, io::Error),
    #[error(transparent)]
    Description(#[from] JobError),
    #[error("the job description is of another job or host")]
    OtherDescription,
    #[error(
        "--memory and --pids need a cgroup for each process, and this daemon has none: {0} (its \
         systemd unit needs Delegate=yes)"
    )]
    NoLimits(String),
    #[error("the stored program was changed after it was found; run it again")]
    Changed,
    #[error("cannot read the stored program: {0}")]
    Find(io::Error),
    #[error("cannot start the program: {0}")]
    Start(io::Error),
    #[error("{0} ended the job before it had started")]
    Killed(ToldBy),
    #[error(transparent)]
    Kept(#[from] KeptError),
}

type Said = mpsc::Receiver<Result<FromController, ConnectionError>>;

/// Runs a process as `request` says.
pub(crate) async fn run<R, W>(
    daemon: &Arc<Daemon>,
    owner: &Member,
    request: RunRequest,
    receiver: Receiver<R>,
    sender: Sender<W>,
) where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (said, hears) = mpsc::channel(QUEUE);
    let listening = tokio::spawn(listen(receiver, said));
    let (tell, told) = mpsc::unbounded_channel();
    let speaking = tokio::spawn(speak(sender, told));
    let mut conversation = Conversation { daemon, request, hears, tell };
    if let Err(error) = conversation.hold(owner).await {
        tracing::warn!(%error, "not run");
        let _ = conversation.tell.send(FromDaemon::Refused(error.to_string()));
    }
    drop(conversation);
    // Ends when all is sent, or nobody takes it.
    let _ = speaking.await;
    listening.abort();
}

async fn listen<R: AsyncRead + Unpin>(
    mut receiver: Receiver<R>,
    said: mpsc::Sender<Result<FromController, ConnectionError>>,
) {
    loop {
        let message = receiver.receive(SILENCE).await;
        let is_last = message.is_err();
        if said.send(message).await.is_err() || is_last {
            return;
        }
    }
}

async fn speak<W: AsyncWrite + Unpin>(
    mut sender: Sender<W>,
    mut told: mpsc::UnboundedReceiver<FromDaemon>,
) {
    loop {
        let message = match timeout(ALIVE_EVERY, told.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(_) => FromDaemon::Alive,
        };
        // A controller that takes nothing for so long is as good as gone.
        if !matches!(timeout(SILENCE, sender.send(&message)).await, Ok(Ok(()))) {
            return;
        }
    }
    // The controller may be gone, and then need not be told.
    let _ = timeout(SILENCE, sender.close()).await;
}

struct Conversation<'a> {
    daemon: &'a Arc<Daemon>,
    request: RunRequest,
    hears: Said,
    tell: mpsc::UnboundedSender<FromDaemon>,
}

impl Conversation<'_> {
    async fn hold(&mut self, owner: &Member) -> Result<(), NotRun> {
        let admitted = self.daemon.jobs.admit(&self.request, &owner.name)?;
        self.check_limits()?;
        let program = self.program().await?;
        let address = self.daemon.config.data_address();
        let listener = std::net::TcpListener::bind((address, 0));
        let listener = listener.map_err(|error| NotRun::Listen(address, error))?;
        let address = listener.local_addr().map_err(|error| NotRun::Listen(address, error))?;
        self.say(FromDaemon::Prepared { address, owns_cores: self.owns_cores() });
        let description = self.description(&admitted.job).await?;

        let mark = format!("{}.{}", self.request.job, self.request.host);
        let work = self.on_disk(&mark, State::note).await.map_err(NotRun::Start)?;
        let cgroup = self.cgroup(&mark);
        let result = match cgroup {
            Err(error) => Err(error),
            Ok(cgroup) => {
                let started =
                    self.start(program, &work, &mark, &description, listener, cgroup.clone()).await;
                match started {
                    Ok(kept) => {
                        self.daemon.counts.started.fetch_add(1, Relaxed);
                        self.watch(kept, &admitted, &mark, cgroup).await;
                        Ok(())
                    }
                    Err(error) => {
                        self.end_what_is_left(&mark, cgroup).await;
                        Err(error)
                    }
                }
            }
        };
        let forget = |state: &State, mark: &str| {
            state.forget(mark);
            Ok(())
        };
        // It does not fail.
        let _ = self.on_disk(&mark, forget).await;
        self.daemon.sweep.notify_one();
        result
    }

    /// Fails if the job has limits that this daemon cannot enforce.
    fn check_limits(&self) -> Result<(), NotRun> {
        let limits = &self.request.limits;
        let checked = match &self.daemon.cgroups {
            Ok(cgroups) => cgroups.check(limits),
            Err(_) if *limits == Limits::default() => Ok(()),
            Err(reason) => Err(reason.clone()),
        };
        checked.map_err(NotRun::NoLimits)
    }

    /// Makes the cgroup of the process, where the daemon has some.
    fn cgroup(&self, mark: &str) -> Result<Option<Cgroup>, NotRun> {
        let Ok(cgroups) = &self.daemon.cgroups else { return Ok(None) };
        cgroups.create(mark, &self.request.limits).map(Some).map_err(|error| {
            let root = cgroups.root().display();
            NotRun::Start(io::Error::other(format!("cannot make a cgroup in {root}: {error}")))
        })
    }

    /// Ends what the keeper could not end, because it was killed itself.
    async fn end_what_is_left(&self, mark: &str, cgroup: Option<Cgroup>) {
        let (daemon, mark) = (self.daemon.clone(), mark.to_owned());
        let ended = blocking(move || {
            // All three, even if one fails.
            let in_cgroup = match (&daemon.cgroups, cgroup) {
                (Ok(cgroups), Some(cgroup)) => cgroups.end(cgroup),
                _ => Ok(()),
            };
            let strays = daemon.keepers.kill_strays(LEFT);
            let marked = kill::kill_all(LEFT, kill::looks_for_marked(&mark));
            in_cgroup.and(strays).and(marked)
        });
        if let Err(error) = ended.await {
            tracing::warn!(%error, "cannot end some processes of the job");
        }
    }

    /// Does something with what is on disk of a process, which may make this wait.
    async fn on_disk<T: Send + 'static>(
        &self,
        mark: &str,
        act: fn(&State, &str) -> io::Result<T>,
    ) -> io::Result<T> {
        let (daemon, mark) = (self.daemon.clone(), mark.to_owned());
        blocking(move || act(&daemon.state, &mark)).await
    }

    fn say(&self, message: FromDaemon) {
        // Whether the controller is gone is noticed where it is listened to.
        let _ = self.tell.send(message);
    }

    /// What the controller says next, `Alive` left out.
    async fn hear(&mut self) -> Result<FromController, NotRun> {
        loop {
            match self.hears.recv().await {
                Some(Ok(FromController::Alive)) => {}
                Some(Ok(message)) => return Ok(message),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(ConnectionError::Closed.into()),
            }
        }
    }

    /// The program's file, received from the controller if it is not here.
    async fn program(&mut self) -> Result<File, NotRun> {
        let store = self.daemon.state.store().clone();
        // Several processes of a job on this host ask for it at once.
        let program = self.request.program.clone();
        let _turn = tokio::select! {
            biased;
            turn = store.turn(&program) => turn,
            said = self.hear() => return Err(said.err().unwrap_or(NotRun::OutOfTurn)),
        };
        let (there, wanted) = (store.clone(), program.clone());
        let found = blocking(move || there.find(&wanted)).await;
        if let Some(file) = found.map_err(NotRun::Find)? {
            return Ok(file);
        }
        let mut incoming = store.receive(&self.request.program)?;
        self.say(FromDaemon::SendProgram);
        loop {
            match self.hear().await? {
                FromController::Program(bytes) => {
                    self.daemon.counts.program_bytes.fetch_add(bytes.len() as u64, Relaxed);
                    // The disk may make this wait.
                    incoming = blocking(move || {
                        incoming.write(&bytes)?;
                        Ok::<_, NotRun>(incoming)
                    })
                    .await?;
                }
                FromController::ProgramEnd => {
                    return blocking(move || Ok(incoming.finish()?)).await;
                }
                _ => return Err(NotRun::OutOfTurn),
            }
        }
    }

    fn owns_cores(&self) -> bool {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        self.daemon.config.exclusive_cores
            && self.daemon.jobs.running() == 1
            && self.request.threads.saturating_mul(self.request.processes) as usize <= cpus
    }

    /// The job description, once all other hosts are prepared.
    async fn description(&mut self, job: &Job) -> Result<JobDescription, NotRun> {
        let mut killed = job.killed_by();
        let message = tokio::select! {
            message = timeout(PREPARED_FOR, self.hear()) => {
                message.map_err(|_| ConnectionError::Silent(PREPARED_FOR))??
            }
            by = who(&mut killed) => return Err(NotRun::Killed(by)),
        };
        let FromController::Start(json) = message else { return Err(NotRun::OutOfTurn) };
        let description = JobDescription::from_json(json.0.as_bytes())?;
        let is_ours = description.job == self.request.job
            && description.host == self.request.host
            && description.rack == self.daemon.identity.rack.as_str();
        if is_ours { Ok(description) } else { Err(NotRun::OtherDescription) }
    }

    async fn start(
        &self,
        file: File,
        work: &Path,
        mark: &str,
        description: &JobDescription,
        listener: std::net::TcpListener,
        cgroup: Option<Cgroup>,
    ) -> Result<Kept, NotRun> {
        const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];
        let inherited = INHERITED.iter().filter_map(|name| {
            Some(((*name).to_owned(), std::env::var_os(name)?.into_string().ok()?))
        });
        let mark_of_job = (kill::MARK.to_owned(), mark.to_owned());
        let request = &self.request;
        let name = std::iter::once(request.program.name.clone());
        let launch = Launch {
            cgroup,
            arguments: name.chain(request.arguments.iter().cloned()).collect(),
            environment: inherited
                .chain(request.environment.clone())
                .chain([mark_of_job])
                .collect(),
            directory: request.directory.clone().map_or_else(|| utf8(work), Ok)?,
        };
        // Time may have passed while other hosts got ready. The file that is verified here is the one
        // that is executed.
        let program = request.program.clone();
        let file = blocking(move || match store::is_program(&file, &program) {
            Ok(true) => Ok(file),
            Ok(false) => Err(NotRun::Changed),
            Err(error) => Err(NotRun::Start(error)),
        })
        .await?;
        let keepers = &self.daemon.keepers;
        Ok(start(keepers, file, &launch, mark, description, listener, request.input).await?)
    }
}

async fn who(killed: &mut watch::Receiver<Option<ToldBy>>) -> ToldBy {
    let by = killed.wait_for(Option::is_some).await.ok().and_then(|by| by.clone());
    match by {
        Some(by) => by,
        // The job is gone, and nobody can kill it.
        None => pending().await,
    }
}

fn utf8(path: &Path) -> Result<String, NotRun> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| NotRun::Start(io::Error::other(format!("{} is not UTF-8", path.display()))))
}

async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Not started because the runtime is going: and this task with it.
            Err(_) => pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Stream;

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_takes_nothing_is_not_spoken_to_for_ever() {
        let (ours, _theirs) = tokio::io::duplex(10);
        let (tell, told) = mpsc::unbounded_channel();
        tell.send(FromDaemon::Output(Stream::Out, vec![0; 100])).unwrap();
        drop(tell);
        let spoken = timeout(10 * SILENCE, speak(Sender::new(ours), told)).await;
        assert!(spoken.is_ok(), "it still speaks");
    }
}

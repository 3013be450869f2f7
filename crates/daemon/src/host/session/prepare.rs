//! The first half of a session: limits, program and job description, until the process starts.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use daemon_protocol::{FromController, FromDaemon, Limits};
use gossamer_job::JobDescription;
use tokio::time::timeout;

use crate::connection::ConnectionError;
use crate::host::jobs::Job;
use crate::host::session::cleanup::blocking;
use crate::host::session::error::SessionError;
use crate::host::session::peer::{Session, end_requested};
use crate::host::store;
use crate::process::cgroup::Cgroup;
use crate::process::kill;
use crate::process::supervised::{Supervised, start};
use crate::process::supervisor::Launch;

/// How long a controller may take from preparing a host to starting its process: other hosts may be
/// receiving a large program.
const PREPARED_FOR: Duration = Duration::from_secs(600);

impl Session<'_> {
    /// Fails if the job has limits that this daemon cannot enforce.
    pub(super) fn check_limits(&self) -> Result<(), SessionError> {
        let limits = &self.request.limits;
        let checked = match &self.daemon.cgroups {
            Ok(cgroups) => cgroups.check(limits),
            Err(_) if *limits == Limits::default() => Ok(()),
            Err(reason) => Err(reason.clone()),
        };
        checked.map_err(SessionError::NoLimits)
    }

    /// Makes the cgroup of the process, where the daemon has some.
    pub(super) fn cgroup(&self, mark: &str) -> Result<Option<Cgroup>, SessionError> {
        let Ok(cgroups) = &self.daemon.cgroups else { return Ok(None) };
        cgroups.create(mark, &self.request.limits).map(Some).map_err(|error| {
            let root = cgroups.root().display();
            SessionError::Start(io::Error::other(format!(
                "cannot make a cgroup in {root}: {error}"
            )))
        })
    }

    /// The program's file, received from the controller if it is not here.
    pub(super) async fn program(&mut self) -> Result<File, SessionError> {
        let store = self.daemon.state.store().clone();
        // Several processes of a job on this host may need it at once.
        let program = self.request.program.clone();
        let _turn = tokio::select! {
            biased;
            turn = store.turn(&program) => turn,
            message = self.receive() => return Err(message.err().unwrap_or(SessionError::OutOfTurn)),
        };
        let (there, wanted) = (store.clone(), program.clone());
        let found = blocking(move || there.find(&wanted)).await;
        if let Some(file) = found.map_err(SessionError::Find)? {
            return Ok(file);
        }
        let mut incoming = store.receive(&self.request.program)?;
        self.send(FromDaemon::SendProgram);
        loop {
            match self.receive().await? {
                FromController::Program(bytes) => {
                    self.daemon.counts.program_bytes.fetch_add(bytes.len() as u64, Relaxed);
                    // The disk may make this wait.
                    incoming = blocking(move || {
                        incoming.write(&bytes)?;
                        Ok::<_, SessionError>(incoming)
                    })
                    .await?;
                }
                FromController::ProgramEnd => {
                    return blocking(move || Ok(incoming.finish()?)).await;
                }
                _ => return Err(SessionError::OutOfTurn),
            }
        }
    }

    pub(super) fn owns_cores(&self) -> bool {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        self.daemon.config.exclusive_cores
            && self.daemon.jobs.running() == 1
            && self.request.threads.saturating_mul(self.request.processes) as usize <= cpus
    }

    /// The job description, once all other hosts are prepared.
    pub(super) async fn description(&mut self, job: &Job) -> Result<JobDescription, SessionError> {
        let mut end_requests = job.end_requests();
        let message = tokio::select! {
            message = timeout(PREPARED_FOR, self.receive()) => {
                message.map_err(|_| ConnectionError::Silent(PREPARED_FOR))??
            }
            by = end_requested(&mut end_requests) => return Err(SessionError::Killed(by)),
        };
        let FromController::Start(json) = message else { return Err(SessionError::OutOfTurn) };
        let mut description = JobDescription::from_json(json.0.as_bytes())?;
        // Whatever the controller says: it decides who runs, not who signs.
        description.signing = Some((*self.daemon.signing_authority()).clone());
        let is_ours = description.job == self.request.job
            && description.host == self.request.host
            && description.rack == self.daemon.identity.rack.as_str();
        if is_ours { Ok(description) } else { Err(SessionError::OtherDescription) }
    }

    pub(super) async fn start(
        &self,
        file: File,
        work: &Path,
        mark: &str,
        description: &JobDescription,
        listener: std::net::TcpListener,
        cgroup: Option<Cgroup>,
    ) -> Result<Supervised, SessionError> {
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
            open_files: self.daemon.open_files,
            directory: request.directory.clone().map_or_else(|| utf8(work), Ok)?,
        };
        // Time may have passed while other hosts were prepared. The file verified here is the one that
        // is executed.
        let program = request.program.clone();
        let file = blocking(move || match store::is_program(&file, &program) {
            Ok(true) => Ok(file),
            Ok(false) => Err(SessionError::Changed),
            Err(error) => Err(SessionError::Start(error)),
        })
        .await?;
        let supervisors = &self.daemon.supervisors;
        Ok(start(supervisors, file, &launch, mark, description, listener, request.input).await?)
    }
}

fn utf8(path: &Path) -> Result<String, SessionError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        SessionError::Start(io::Error::other(format!("{} is not UTF-8", path.display())))
    })
}

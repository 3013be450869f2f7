//! A job, from its program to its exit status.
//!
//! 1. The controller requests a process from each host, and sends the program to hosts without it. Each
//!    answers at which address its process will listen.
//! 2. When all have answered, the controller sends each its description of the job; the processes start.
//! 3. The controller prints output and forwards input and signals until all processes have ended. When
//!    one fails, it ends all others at once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};

use daemon_protocol::{
    CHUNK, Ending, FromController, FromDaemon, How, Limits, Name, OUTPUT_WINDOW, Process, Request,
    RunRequest, SIGKILL,
};
use gossamer_job::{AuthorityError, JobHost, JobId, SecretPem};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::causes::with_causes;
use crate::controller::call::{CallError, Caller};
use crate::controller::credentials::{self, Common};
use crate::controller::link::{HostMessage, Link};
use crate::controller::printer::Printer;
use crate::controller::program::{digest, find};
use crate::controller::signals::{Action, Signals};
use crate::controller::verdict::{Outcome, Verdict};
use crate::{escape, files};

/// How long the other hosts may take to end after host 0 has ended normally.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// How long processes may take to end after another one has failed, in milliseconds.
const GRACE_MS: u32 = 300;
/// How long they may take when the user ends the job, in milliseconds.
const INTERRUPT_GRACE_MS: u32 = 2000;
/// Messages of the hosts that wait to be handled.
const QUEUE: usize = 64;

const SIGTERM: i32 = 15;

/// The program to run, and its hosts.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The hosts; the first is host 0, where `main` runs.
    pub hosts: Vec<Name>,
    /// Processes on each host.
    pub processes: u32,
    /// Threads of each process.
    pub threads: u32,
    /// Variables for the environment of the processes.
    pub environment: Vec<(String, String)>,
    /// Their working directory; a new empty one for each if not set.
    pub directory: Option<String>,
    /// Whether to pin threads to cores even if other jobs may use these.
    pub pin: bool,
    /// Milliseconds without traffic after which processes declare each other lost.
    pub loss_bound_ms: u64,
    /// Limits of each process.
    pub limits: Limits,
    /// The program: a path, or a name to search for in `PATH`.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A job did not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// The list of hosts is empty, or names a host twice.
    #[error("{0}")]
    Hosts(String),
    /// The program could not be read.
    #[error("cannot read the program {program}")]
    Program {
        /// Its name.
        program: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// A host could not be reached, or refused.
    #[error("the job was not started")]
    Call(#[from] CallError),
    /// The credentials of the job could not be made.
    #[error(transparent)]
    Credentials(#[from] AuthorityError),
    /// The user ended it before it had started.
    #[error("the job was not started: ended by signal {0}")]
    Interrupted(i32),
    /// A system call failed.
    #[error("the job was not started because a system call failed")]
    System(#[from] io::Error),
}

/// Runs a job, with the standard input, output and error of this process. The caller prints the
/// verdict.
///
/// # Errors
/// [`RunError`], if it did not start; then it runs nowhere.
pub async fn run(caller: &Caller, options: &RunOptions) -> Result<Verdict, RunError> {
    let mut signals = Signals::new()?;
    let mut job = tokio::select! {
        prepared = Job::prepare(caller, options) => prepared?,
        signal = signals.end() => return Err(RunError::Interrupted(signal)),
    };
    let addresses = tokio::select! {
        addresses = job.addresses() => addresses?,
        signal = signals.end() => return Err(RunError::Interrupted(signal)),
    };
    job.start(caller, options, &addresses)?;
    job.watch(&mut signals).await
}

/// A job on its hosts. Its processes are listed by number, so those of one host are adjacent.
struct Job {
    id: JobId,
    /// The host of each process.
    hosts: Vec<Name>,
    /// The name of each process.
    names: Vec<String>,
    links: Vec<Link>,
    incoming: mpsc::Receiver<HostMessage>,
    file: PathBuf,
    /// How processes ended, in the order of the reports.
    outcomes: Vec<(String, Outcome)>,
    /// Which of them have ended or are lost.
    has_ended: Vec<bool>,
    /// Processes whose output has ended.
    is_quiet: Vec<bool>,
    /// The signal with which the user has ended the job.
    interrupted: Option<i32>,
    /// Free places in the input window of host 0.
    room: Arc<Semaphore>,
}

impl Job {
    /// Requests a process from each host.
    async fn prepare(caller: &Caller, options: &RunOptions) -> Result<Self, RunError> {
        check_hosts(&options.hosts)?;
        let processes = options.processes;
        let several = |host| iter::repeat_n(host, processes as usize);
        let hosts: Vec<_> = options.hosts.iter().cloned().flat_map(several).collect();
        let names = (0..).zip(&hosts);
        let names = names.map(|(number, host)| Process::new(number, processes).name(host));
        let names = names.collect();
        let unreadable = |error| RunError::Program { program: options.program.clone(), error };
        let file = find(&options.program).map_err(unreadable)?;
        let program = {
            let (file, name) = (file.clone(), options.program.clone());
            let read = tokio::task::spawn_blocking(move || digest(&file, name));
            read.await.map_err(io::Error::other)?.map_err(unreadable)?
        };
        let id = JobId(files::random_number()?);
        let (sender, incoming) = mpsc::channel(QUEUE);
        let mut opening = JoinSet::new();
        for (number, host) in hosts.iter().cloned().enumerate() {
            let request = RunRequest {
                job: id,
                host: number as u32,
                hosts: hosts.len() as u32,
                processes,
                threads: options.threads,
                program: program.clone(),
                arguments: options.arguments.clone(),
                environment: options.environment.clone(),
                directory: options.directory.clone(),
                input: number == 0,
                limits: options.limits,
            };
            let (caller, sender) = (caller.clone(), sender.clone());
            opening.spawn(async move {
                let request = Request::Run(Box::new(request));
                let link = Link::open(&caller, number, &host, request, sender).await?;
                Ok::<_, CallError>((number, link))
            });
        }
        let mut links = Vec::new();
        while let Some(opened) = opening.join_next().await {
            links.push(opened.map_err(io::Error::other)??);
        }
        links.sort_by_key(|(number, _)| *number);
        let links = links.into_iter().map(|(_, link)| link).collect();
        let no = vec![false; hosts.len()];
        let (has_ended, is_quiet) = (no.clone(), no);
        let room = Arc::new(Semaphore::new(OUTPUT_WINDOW));
        Ok(Self {
            id,
            hosts,
            names,
            links,
            incoming,
            file,
            outcomes: vec![],
            has_ended,
            is_quiet,
            interrupted: None,
            room,
        })
    }

    /// Sends the program to hosts without it, until all are prepared. Returns where their processes will
    /// listen, and whether they have their cores to themselves.
    async fn addresses(&mut self) -> Result<Vec<(SocketAddr, bool)>, RunError> {
        let mut prepared = vec![None; self.hosts.len()];
        while prepared.iter().any(Option::is_none) {
            let Some((number, message)) = self.incoming.recv().await else { return Ok(vec![]) };
            let host = || self.hosts[number].clone();
            match message {
                Ok(FromDaemon::SendProgram) => self.links[number].push(self.file.clone()),
                Ok(FromDaemon::Prepared { address, owns_cores }) => {
                    prepared[number] = Some((address, owns_cores));
                }
                Ok(FromDaemon::Refused(reason)) => {
                    let reason = escape::name(&reason).into_owned();
                    return Err(CallError::Refused { host: host(), reason }.into());
                }
                Ok(_) => {
                    let reason = "unexpected message of its daemon".into();
                    return Err(CallError::Refused { host: host(), reason }.into());
                }
                Err(error) => return Err(CallError::Connection { host: host(), error }.into()),
            }
        }
        Ok(prepared.into_iter().flatten().collect())
    }

    fn start(
        &mut self,
        caller: &Caller,
        options: &RunOptions,
        addresses: &[(SocketAddr, bool)],
    ) -> Result<(), RunError> {
        let threads = options.threads;
        let host = |(name, (address, _)): (&Name, &(SocketAddr, bool))| JobHost {
            name: name.to_string(),
            address: *address,
            threads,
        };
        let common = Common {
            rack: caller.rack.to_string(),
            job: self.id,
            hosts: self.hosts.iter().zip(addresses).map(host).collect(),
            secret: files::random_secret()?,
            loss_bound_ms: options.loss_bound_ms,
        };
        let pin: Vec<bool> = addresses.iter().map(|(_, owns)| options.pin || *owns).collect();
        for (link, description) in self.links.iter().zip(credentials::descriptions(&common, &pin)?)
        {
            link.send(FromController::Start(SecretPem(description.to_json())));
        }
        Ok(())
    }

    /// Serves the job until it has ended on all hosts and all its output is printed.
    async fn watch(mut self, signals: &mut Signals) -> Result<Verdict, RunError> {
        let names: Vec<_> = self.names.iter().cloned().zip(self.links.iter().cloned()).collect();
        let printer = Printer::new(names)?;
        let forwarding = tokio::spawn(forward_input(self.links[0].clone(), self.room.clone()));
        let mut grace_ends = None;
        while !self.is_quiet.iter().all(|quiet| *quiet) {
            tokio::select! {
                incoming = self.incoming.recv() => match incoming {
                    Some((number, message)) => self.take(number, message, &printer, &mut grace_ends),
                    None => break,
                },
                action = signals.next() => match action {
                    Action::Forward(signal) => self.send_to_all(&FromController::Signal(signal)),
                    Action::End(signal) => {
                    let is_second = self.interrupted.replace(signal).is_some();
                    let (signal, grace_ms) =
                        if is_second { (SIGKILL, 0) } else { (signal, INTERRUPT_GRACE_MS) };
                    self.stop(signal, grace_ms);
                }},
                () = sleep_until(grace_ends.unwrap_or_else(Instant::now)), if grace_ends.is_some() => {
                    grace_ends = None;
                    self.stop(SIGTERM, GRACE_MS);
                }
            }
        }
        forwarding.abort();
        self.links.clear();
        let printed = tokio::task::spawn_blocking(move || printer.finish());
        printed.await.map_err(io::Error::other)?;
        Ok(Verdict::of(self.id, &self.outcomes, self.interrupted))
    }

    fn take(
        &mut self,
        number: usize,
        message: Result<FromDaemon, crate::connection::ConnectionError>,
        printer: &Printer,
        grace_ends: &mut Option<Instant>,
    ) {
        match message {
            Ok(FromDaemon::Output(stream, bytes)) => printer.print(number, stream, bytes),
            Ok(FromDaemon::Taken(bytes)) => self.room.add_permits(bytes as usize),
            Ok(FromDaemon::Ended(ending)) => {
                let is_well = matches!(ending, Ending { how: How::Exited(0), .. });
                if number == 0 && is_well {
                    *grace_ends = Some(Instant::now() + SHUTDOWN_GRACE);
                }
                self.note(number, Outcome::Ended(ending));
            }
            Ok(FromDaemon::Refused(reason)) => self.note(number, Outcome::Refused(reason)),
            // The rest of the input cannot be sent.
            Ok(_) => {}
            Err(error) => {
                if !self.has_ended[number] {
                    self.note(number, Outcome::Lost(with_causes(&error).to_string()));
                }
                self.is_quiet[number] = true;
            }
        }
    }

    /// Notes how a process ended; if it failed, ends the others.
    fn note(&mut self, number: usize, outcome: Outcome) {
        let ends_others = outcome.ends_others();
        self.has_ended[number] = true;
        self.outcomes.push((self.names[number].clone(), outcome));
        // Those that the user has ended have their time, whatever becomes of the others.
        if ends_others && self.interrupted.is_none() {
            self.stop(SIGTERM, GRACE_MS);
        }
    }

    fn stop(&self, signal: i32, grace_ms: u32) {
        self.send_to_all(&FromController::Stop { signal, grace_ms });
    }

    fn send_to_all(&self, message: &FromController) {
        for (link, _) in self.links.iter().zip(&self.has_ended).filter(|(_, ended)| !**ended) {
            link.send(message.clone());
        }
    }
}

fn check_hosts(hosts: &[Name]) -> Result<(), RunError> {
    if hosts.is_empty() {
        return Err(RunError::Hosts("no hosts: name at least one with `--hosts a,b`".into()));
    }
    for (number, host) in hosts.iter().enumerate() {
        if hosts[..number].contains(host) {
            return Err(RunError::Hosts(format!(
                "duplicate host {host}: for several processes on each host use \
                 `--processes-per-host`"
            )));
        }
    }
    Ok(())
}

/// Sends the standard input to host 0, within its window.
async fn forward_input(link: Link, room: Arc<Semaphore>) {
    let mut input = tokio::io::stdin();
    let mut chunk = vec![0; CHUNK.min(16 << 10)];
    loop {
        match input.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(bytes) => {
                let Ok(permits) = room.acquire_many(bytes as u32).await else { return };
                permits.forget();
                link.send(FromController::Input(chunk[..bytes].to_vec()));
            }
        }
    }
    link.send(FromController::InputEnd);
}

#[cfg(test)]
mod tests;

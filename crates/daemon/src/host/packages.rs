//! Brings packages of jams into the processes of jobs: verifies the signature, hands the package to each
//! process of the job on this host, and logs who sent what, who signed it, and what ran.
//!
//! The daemon's log is the audit log: its entries of the target [`AUDIT`] say which member brought which
//! package into which job, by digest and signer; which process took it; and which jams a process has
//! run for the first time, as it says. The last come from the process, so they are bounded and paced.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use daemon_protocol::{Answer, HEARTBEAT_INTERVAL, PackagePart, Process, SILENCE_TIMEOUT};
use gossamer_job::{
    CodeEvent, FromProcess, JobId, LARGEST_FROM_PROCESS, PackageHeader, Signer, Signers,
    SigningAuthority, package_message,
};
use jam_format::{MAX_PACKAGE_BYTES, Package, Proof};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::causes::with_causes;
use crate::connection::{ConnectionError, Receiver, Sender};
use crate::host::daemon::Daemon;
use crate::host::delivery::{Deliveries, Delivery};
use crate::host::jobs::Job;
use crate::security::member::Member;

/// The target of log entries about code that was brought into jobs, and that ran.
pub(crate) const AUDIT: &str = "gossamer_audit";
/// Packages that a daemon receives at a time: each may have 64 MiB.
const AT_ONCE: usize = 4;
/// How long a process may take to read a package, and to answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a caller may take to receive an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// The pause after each report of a process that a jam ran for the first time.
const PAUSE: Duration = Duration::from_millis(5);
/// Packages that wait for one process.
const QUEUE: usize = 4;

/// Why a process takes no more packages.
pub(crate) const ENDED: &str = "the process has ended";
const CLOSED: &str = "the process has ended, or has closed its socket for packages";
const UNREAD: &str = "the process did not read its socket for packages in time";
const GARBAGE: &str = "the process sent an invalid message over its socket for packages";

/// The places of packages that are being received.
#[derive(Debug)]
pub(crate) struct Places(Semaphore);

impl Default for Places {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

/// Why a package is not brought into a job.
#[derive(Debug, Error)]
enum NotBrought {
    #[error("package of {0} bytes, expected 1 to {MAX_PACKAGE_BYTES}")]
    Length(u64),
    #[error("{AT_ONCE} packages are being sent to this host, the limit: try again later")]
    Busy,
    #[error("the package is refused")]
    Package(#[from] jam_format::PackageError),
    #[error("the package is not signed: sign it with `gossamer jam sign`")]
    Unsigned,
    #[error("the package is refused")]
    Signature(#[from] gossamer_job::SignatureError),
    #[error("this daemon cannot verify signatures")]
    Signers(#[from] gossamer_job::SignersError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// Serves a request to bring a package into `job`.
pub(crate) async fn bring<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    daemon: &Daemon,
    member: &Member,
    job: JobId,
    bytes: u64,
    receiver: Receiver<R>,
    sender: &mut Sender<W>,
) -> Result<(), ConnectionError> {
    let processes: Vec<_> = daemon.jobs.of(job).into_iter().filter(|job| job.runs()).collect();
    if processes.is_empty() {
        return send(sender, &Answer::PackageEnd(None)).await;
    }
    // Held until all processes have it.
    let place = daemon.packages.0.try_acquire().map_err(|_| NotBrought::Busy);
    let received = match &place {
        Ok(_) => receive(daemon, job, bytes, receiver, sender).await,
        Err(_) => Err(NotBrought::Busy),
    };
    match received {
        Ok((package, signer)) => deliver(member, processes, package, signer, sender).await,
        Err(NotBrought::Connection(error)) => Err(error),
        Err(error) => {
            let reason = with_causes(&error).to_string();
            tracing::warn!(target: AUDIT, by = %member.name, %job, reason, "refused a package");
            send(sender, &Answer::Refused(reason)).await
        }
    }
}

/// Receives a package and verifies its signature.
async fn receive<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    daemon: &Daemon,
    job: JobId,
    bytes: u64,
    mut receiver: Receiver<R>,
    sender: &mut Sender<W>,
) -> Result<(Vec<u8>, Signer), NotBrought> {
    let len = usize::try_from(bytes).ok().filter(|len| *len <= MAX_PACKAGE_BYTES);
    let len = len.filter(|len| *len > 0).ok_or(NotBrought::Length(bytes))?;
    send(sender, &Answer::SendPackage).await?;
    let mut package = Vec::new();
    while package.len() < len {
        let PackagePart(part) = receiver.receive(SILENCE_TIMEOUT).await?;
        if part.is_empty() || part.len() > len - package.len() {
            let text = format!("a part of {} bytes of a package", part.len());
            return Err(ConnectionError::Violation(text).into());
        }
        package.extend_from_slice(&part);
    }
    let (rack, authority) = (daemon.identity.rack.clone(), daemon.signing_authority());
    let verified = spawn_blocking(move || {
        let signers = Signers::new(rack.as_str(), Some(job), &authority)?;
        let parsed = Package::parse(&package)?;
        parsed.signature()?.ok_or(NotBrought::Unsigned)?;
        let proof = parsed.proof().ok_or(NotBrought::Unsigned)?;
        let signer = signers.verify(&Proof::parse(&proof)?)?;
        Ok((package, signer))
    });
    // It does not panic: every input is a package or an error.
    verified.await.unwrap_or(Err(NotBrought::Busy))
}

/// Hands a verified package to each of `processes`, and answers what they did with it.
async fn deliver<W: AsyncWrite + Unpin>(
    member: &Member,
    processes: Vec<Arc<Job>>,
    package: Vec<u8>,
    signer: Signer,
    sender: &mut Sender<W>,
) -> Result<(), ConnectionError> {
    let by = &member.name;
    if let Ok(parsed) = Package::parse(&package) {
        let (name, digest) = (parsed.name(), parsed.digest());
        tracing::info!(
            target: AUDIT, %by, package = name, %digest, signer = signer.name,
            certificate = signer.certificate, bytes = package.len(), "brings a package into a job"
        );
    }
    let package = Arc::<[u8]>::from(package);
    let mut delivering = JoinSet::new();
    for job in processes {
        let package = package.clone();
        let hand = async move {
            let process = job.summary().process();
            (process, hand_over(&job, package).await)
        };
        delivering.spawn(hand.in_current_span());
    }
    loop {
        let answer = match timeout(HEARTBEAT_INTERVAL, delivering.join_next()).await {
            Err(_) => Answer::Heartbeat,
            Ok(None) => break,
            Ok(Some(Err(_))) => continue,
            Ok(Some(Ok((process, refused)))) => {
                log_outcome(process, refused.as_deref());
                Answer::Package { process, refused }
            }
        };
        send(sender, &answer).await?;
    }
    send(sender, &Answer::PackageEnd(Some(signer.name))).await
}

/// Tells the processes of all jobs that the authority has changed: it has a newer list of revoked
/// certificates.
pub(crate) fn announce(daemon: &Daemon) {
    for job in daemon.jobs.that_run() {
        if let Err(reason) = tell_of_authority(&job) {
            let summary = job.summary();
            let (job, process) = (summary.job, summary.process().number);
            tracing::warn!(
                target: AUDIT, %job, process, reason,
                "cannot tell a process of revoked certificates: end its job to be sure"
            );
        }
    }
}

/// Tells a process that the authority has changed, or returns why it cannot be told.
fn tell_of_authority(job: &Job) -> Result<(), &'static str> {
    let deliveries = match job.deliveries() {
        // It is told when it starts.
        Deliveries::NotStarted => return Ok(()),
        Deliveries::Open(deliveries) => deliveries,
        Deliveries::Ended(ENDED) => return Ok(()),
        Deliveries::Ended(reason) => return Err(reason),
    };
    let (answer, _) = oneshot::channel();
    match deliveries.try_send(Delivery { package: Arc::default(), answer }) {
        // Whatever is handed over has the newest authority beside it.
        Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => Ok(()),
        Err(mpsc::error::TrySendError::Closed(_)) => Err(CLOSED),
    }
}

fn log_outcome(process: Process, refused: Option<&str>) {
    let number = process.number;
    match refused {
        None => tracing::info!(target: AUDIT, process = number, "a process took the package"),
        Some(reason) => {
            tracing::warn!(target: AUDIT, process = number, reason, "a process refused the package");
        }
    }
}

/// Hands a package to one process. Returns why the process does not take it, if it does not.
async fn hand_over(job: &Job, package: Arc<[u8]>) -> Option<String> {
    let ended = || match job.deliveries() {
        Deliveries::Ended(reason) => Some(reason.to_owned()),
        _ => Some("the process has ended, or does not start".to_owned()),
    };
    let Deliveries::Open(deliveries) = job.deliveries() else { return ended() };
    let (answer, answered) = oneshot::channel();
    let delivery = Delivery { package, answer };
    let handing = async {
        if deliveries.send(delivery).await.is_err() {
            return ended();
        }
        answered.await.unwrap_or_else(|_| ended())
    };
    let silent = || {
        Some(format!(
            "the process does not answer within {} s: is it a rack, built with the feature `jam`?",
            TIMEOUT.as_secs()
        ))
    };
    timeout(TIMEOUT, handing).await.unwrap_or_else(|_| silent())
}

async fn send<W: AsyncWrite + Unpin>(
    sender: &mut Sender<W>,
    answer: &Answer,
) -> Result<(), ConnectionError> {
    timeout(ANSWER, sender.send(answer)).await.unwrap_or(Err(ConnectionError::Silent(ANSWER)))
}

/// Answers that a process owes, by the numbers of packages.
type Waiting = parking_lot::Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>;

/// Hands what is in `deliveries` to a process that was started with the authority `told`. It gets the
/// authority as it is at that moment, whenever the package came: a process must not go back to an
/// older list of revoked certificates. Returns why it can hand over no more.
async fn hand_all(
    mut deliveries: mpsc::Receiver<Delivery>,
    mut writing: impl AsyncWrite + Unpin,
    waiting: &Waiting,
    authority: impl Fn() -> Arc<SigningAuthority>,
    told: Option<SigningAuthority>,
) -> &'static str {
    let (mut number, mut first) = (0, None);
    // The list may have changed before the process could be told.
    if told.as_ref() != Some(&*authority()) {
        first = Some((Arc::default(), None));
    }
    loop {
        let (package, answer) = match first.take() {
            Some(first) => first,
            None => match deliveries.recv().await {
                Some(Delivery { package, answer }) => (package, Some(answer)),
                None => return ENDED,
            },
        };
        number += 1;
        {
            let mut waiting = waiting.lock();
            waiting.retain(|_, answer| !answer.is_closed());
            waiting.extend(answer.map(|answer| (number, answer)));
        }
        let authority = (*authority()).clone();
        let header = PackageHeader { number, bytes: package.len() as u64, authority };
        let sent = async {
            writing.write_all(&package_message(&header)).await?;
            writing.write_all(&package).await
        };
        // A package that is sent in part ends the conversation.
        match timeout(TIMEOUT, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return CLOSED,
            Err(_) => return UNREAD,
        }
    }
}

/// Serves the socket for packages of one process, which was started with the authority `told`, until
/// this future is dropped or the process closes the socket.
pub(crate) async fn serve(
    socket: UnixStream,
    job: Arc<Job>,
    daemon: Arc<Daemon>,
    told: Option<SigningAuthority>,
) {
    let (to_process, deliveries) = mpsc::channel::<Delivery>(QUEUE);
    job.set_deliveries(to_process);
    let (mut reading, writing) = socket.into_split();
    let waiting = Waiting::default();
    let write = hand_all(deliveries, writing, &waiting, || daemon.signing_authority(), told);
    let read = async {
        loop {
            let message = match receive_message(&mut reading).await {
                Ok(message) => message,
                Err(reason) => return reason,
            };
            match message {
                FromProcess::Package { number, refused } => {
                    if let Some(answer) = waiting.lock().remove(&number) {
                        let _ = answer.send(refused);
                    }
                }
                FromProcess::Audit { event, name, digest, origin, host } => {
                    let process = job.summary().process().number;
                    match event {
                        CodeEvent::FirstRun => tracing::info!(
                            target: AUDIT, process, jam = name, digest, origin, host,
                            "a jam runs for the first time"
                        ),
                        CodeEvent::RiedStarts => tracing::info!(
                            target: AUDIT, process, ried = name, digest, origin, host,
                            "a ried runs for the first time"
                        ),
                        CodeEvent::RiedLoaded => tracing::info!(
                            target: AUDIT, process, ried = name, digest, origin, host, "a ried is loaded"
                        ),
                        CodeEvent::RiedUnloaded => tracing::info!(
                            target: AUDIT, process, ried = name, digest, origin, host,
                            "a ried is unloaded"
                        ),
                    }
                    sleep(PAUSE).await;
                }
                FromProcess::NotReported(count) => {
                    tracing::warn!(target: AUDIT, count, "entries of the audit log that were not reported");
                    sleep(PAUSE).await;
                }
            }
        }
    };
    let reason = tokio::select! {
        reason = write => reason,
        reason = read => reason,
    };
    job.end_deliveries(reason);
}

/// The next message of a process, or the reason why no more come.
async fn receive_message(from: &mut (impl AsyncRead + Unpin)) -> Result<FromProcess, &'static str> {
    let len = from.read_u32_le().await.map_err(|_| CLOSED)? as usize;
    if len > LARGEST_FROM_PROCESS {
        return Err(GARBAGE);
    }
    let mut json = vec![0; len];
    from.read_exact(&mut json).await.map_err(|_| CLOSED)?;
    serde_json::from_slice(&json).map_err(|_| GARBAGE)
}

#[cfg(test)]
mod tests;

//! The daemon's server: authenticates connections, checks permissions and quotas, answers requests.
//!
//! At most [`PENDING`] connections can wait to authenticate and send a request, each for at most
//! [`HANDSHAKE_TIMEOUT`], and a new one replaces the oldest. So garbage, slow clients and thousands
//! of connections cost a bounded amount of memory, while a member, which needs milliseconds, is still
//! served. Accepted requests count towards [`quotas`](crate::host::quotas), so that no member can lock
//! out others.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use daemon_protocol::{Answer, EndedBy, HEARTBEAT_INTERVAL, Request};
use thiserror::Error;
use tokio::io::{AsyncWrite, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::Instrument;

use crate::causes::with_causes;
use crate::connection::{ConnectionError, Receiver, Sender};
use crate::host::daemon::Daemon;
use crate::host::jobs::Job;
use crate::host::log::Position;
use crate::host::packages;
use crate::host::quotas::{Permit, QuotaReached, Quotas};
use crate::host::session;
use crate::security::acceptor::Acceptor;
use crate::security::member::Member;
use crate::security::tls::{self, TlsError};

/// Connections that have not sent a request yet.
const PENDING: usize = 64;
/// How long a connection may take to authenticate and send its request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to check for a new list of revoked certificates when no connection arrives.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long a caller may take to receive an answer.
const ANSWER: Duration = Duration::from_secs(30);

type Stream = TlsStream<TcpStream>;

#[derive(Debug, Error)]
enum Rejected {
    #[error("TLS handshake failed")]
    Handshake(#[source] io::Error),
    #[error(transparent)]
    Stranger(#[from] TlsError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("no request within {HANDSHAKE_TIMEOUT:?}")]
    Slow,
}

/// Serves all connections.
pub(crate) async fn serve(
    daemon: Arc<Daemon>,
    listener: TcpListener,
    mut acceptor: Acceptor,
) -> Infallible {
    let quotas = Arc::new(Quotas::default());
    let mut pending: VecDeque<AbortHandle> = VecDeque::with_capacity(PENDING);
    let mut checks = interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = checks.tick() => {
                // Jobs that run must learn of a revocation also if no member calls.
                renew(&daemon, &mut acceptor);
                continue;
            }
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or the peer has disconnected already: the next may succeed.
                tracing::debug!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        daemon.counts.connections.fetch_add(1, Relaxed);
        pending.retain(|task| !task.is_finished());
        while pending.len() >= PENDING {
            if let Some(oldest) = pending.pop_front() {
                oldest.abort();
                daemon.counts.strangers.fetch_add(1, Relaxed);
            }
        }
        let acceptor = renew(&daemon, &mut acceptor);
        let (daemon, quotas) = (daemon.clone(), quotas.clone());
        let handshake = async move {
            match timeout(HANDSHAKE_TIMEOUT, authenticate(&daemon, acceptor, stream))
                .await
                .unwrap_or(Err(Rejected::Slow))
            {
                Ok(accepted) => admit(daemon, &quotas, from, accepted),
                Err(reason) => {
                    daemon.counts.strangers.fetch_add(1, Relaxed);
                    tracing::debug!(%from, reason = %with_causes(&reason), "rejected a connection");
                }
            }
        };
        let task = tokio::spawn(handshake.in_current_span());
        pending.push_back(task.abort_handle());
    }
}

/// Loads a new list of revoked certificates if there is one, and tells the processes of jobs. Returns
/// the TLS acceptor for the next connection.
fn renew(daemon: &Daemon, acceptor: &mut Acceptor) -> TlsAcceptor {
    let current = acceptor.current();
    let signing = acceptor.signing();
    let before = std::mem::replace(&mut *daemon.signing.lock(), signing.clone());
    if !Arc::ptr_eq(&before, &signing) {
        packages::announce(daemon);
    }
    current
}

/// A member of the rack with a request.
struct Accepted {
    member: Member,
    request: Request,
    receiver: Receiver<ReadHalf<Stream>>,
    sender: Sender<WriteHalf<Stream>>,
}

/// Authenticates the caller and receives its request.
async fn authenticate(
    daemon: &Daemon,
    acceptor: TlsAcceptor,
    stream: TcpStream,
) -> Result<Accepted, Rejected> {
    stream.set_nodelay(true).map_err(Rejected::Handshake)?;
    let stream = acceptor.accept(stream).await.map_err(Rejected::Handshake)?;
    let member = tls::peer(stream.get_ref().1.peer_certificates(), &daemon.identity)?;
    let (reading, writing) = split(stream);
    let mut receiver = Receiver::new(reading);
    let request = receiver.receive(HANDSHAKE_TIMEOUT).await?;
    Ok(Accepted { member, request, receiver, sender: Sender::new(writing) })
}

/// Serves a request in a separate task, which a new connection does not replace.
fn admit(daemon: Arc<Daemon>, quotas: &Arc<Quotas>, from: SocketAddr, accepted: Accepted) {
    let Accepted { member, request, .. } = &accepted;
    let place = match request {
        // Takes no place, because it must work when none is free; its answer is a few bytes.
        Request::Kill(_) => Ok(None),
        Request::Logs { follow, .. } => quotas.acquire(member, *follow).map(Some),
        _ => quotas.acquire(member, false).map(Some),
    };
    let span = tracing::info_span!(
        "request",
        %from,
        by = %member.name,
        job = tracing::field::Empty,
    );
    if let Some(job) = request.job() {
        span.record("job", tracing::field::display(job));
    }
    tokio::spawn(answer(daemon, place, accepted).instrument(span));
}

/// Serves a request, or answers why it does not. Holds `place` until the connection is closed.
async fn answer(
    daemon: Arc<Daemon>,
    place: Result<Option<Permit>, QuotaReached>,
    accepted: Accepted,
) {
    let Accepted { member, request, receiver, mut sender } = accepted;
    let refusal = if !request.is_allowed_to(member.role) {
        daemon.counts.forbidden.fetch_add(1, Relaxed);
        let what = request.verb();
        tracing::warn!(role = %member.role, what, "refused a forbidden request");
        Some(format!("the {} {} may not {what}", member.role, member.name))
    } else if let Err(reached) = &place {
        tracing::debug!(%reached, "refused a request");
        Some(reached.to_string())
    } else {
        None
    };
    if refusal.is_none() {
        daemon.counts.requests.fetch_add(1, Relaxed);
    }
    let is_run = matches!(request, Request::Run(_));
    let served = match (refusal, request) {
        // The message for this differs between a session and other requests.
        (Some(reason), _) if is_run => {
            let refused = daemon_protocol::FromDaemon::Refused(reason);
            timely(sender.send(&refused)).await
        }
        (Some(reason), _) => timely(sender.send(&Answer::Refused(reason))).await,
        (None, Request::Run(request)) => {
            session::run(&daemon, &member, *request, receiver, sender).await;
            return;
        }
        (None, Request::Describe) => {
            timely(sender.send(&Answer::Host(Box::new(daemon.report())))).await
        }
        (None, Request::Jobs) => show_jobs(&daemon, &mut sender).await,
        (None, Request::Kill(job)) => {
            tracing::info!("ending a job on request");
            let killed = daemon.jobs.kill(job, &EndedBy::Member(member.name, member.role));
            timely(sender.send(&Answer::Killed(killed))).await
        }
        (None, Request::Statistics) => show_statistics(&daemon, &mut sender).await,
        (None, Request::Package { job, bytes }) => {
            packages::bring(&daemon, &member, job, bytes, receiver, &mut sender).await
        }
        (None, Request::Logs { job, follow }) => {
            show_logs(daemon.jobs.of(job), follow, &mut sender).await
        }
    };
    let closed = match served {
        Ok(()) => timely(sender.close()).await,
        Err(error) => Err(error),
    };
    if let Err(error) = closed {
        tracing::debug!(%error, "cannot send the answer");
    }
}

async fn timely(
    sending: impl Future<Output = Result<(), ConnectionError>>,
) -> Result<(), ConnectionError> {
    timeout(ANSWER, sending).await.unwrap_or(Err(ConnectionError::Silent(ANSWER)))
}

/// Sends the state of all jobs.
async fn show_jobs<W: AsyncWrite + Unpin>(
    daemon: &Daemon,
    sender: &mut Sender<W>,
) -> Result<(), ConnectionError> {
    for summary in daemon.jobs.summaries() {
        timely(sender.send(&Answer::Job(Box::new(summary)))).await?;
    }
    timely(sender.send(&Answer::JobsEnd)).await
}

/// Sends the statistics of the threads of all jobs.
async fn show_statistics<W: AsyncWrite + Unpin>(
    daemon: &Daemon,
    sender: &mut Sender<W>,
) -> Result<(), ConnectionError> {
    for job in daemon.jobs.that_run() {
        timely(sender.send(&Answer::Statistics(Box::new(job.statistics())))).await?;
    }
    timely(sender.send(&Answer::StatisticsEnd)).await
}

/// Sends the recent output of processes; and further output, if `follow`.
async fn show_logs<W: AsyncWrite + Unpin>(
    processes: Vec<Arc<Job>>,
    follow: bool,
    sender: &mut Sender<W>,
) -> Result<(), ConnectionError> {
    let is_known = !processes.is_empty();
    // Reads no output before the last was sent: the rest stays in the log, which is bounded.
    let (log_sender, mut answers) = mpsc::channel(1);
    // These tasks end with this function.
    let mut reading = JoinSet::new();
    for job in processes {
        reading.spawn(read_log(job, follow, log_sender.clone()));
    }
    drop(log_sender);
    loop {
        let answer = match timeout(HEARTBEAT_INTERVAL, answers.recv()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return timely(sender.send(&Answer::LogEnd(is_known))).await,
            Err(_) => Answer::Heartbeat,
        };
        timely(sender.send(&answer)).await?;
    }
}

/// Passes on the recent output of a process; and further output, if `follow`.
async fn read_log(job: Arc<Job>, follow: bool, answers: mpsc::Sender<Answer>) {
    let process = job.summary().process();
    let mut changes = job.log.changes();
    let mut position = Position::default();
    // Reading on would never end for a process that writes without pause.
    let last = if follow { Position::MAX } else { job.log.end_position() };
    loop {
        changes.mark_unchanged();
        // Checked before reading, so that all output from before the end is read.
        let has_ended = job.log.has_ended();
        while let Some((stream, bytes)) = job.log.next(&mut position, last) {
            if answers.send(Answer::Log(process, stream, bytes)).await.is_err() {
                return;
            }
        }
        if has_ended || !follow || changes.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use daemon_protocol::Role;

    use super::*;
    use crate::host::daemon::tests::daemon_in;
    use crate::host::jobs::tests::request;
    use crate::security::authority::Authority;

    #[tokio::test(start_paused = true)]
    async fn a_revocation_reaches_running_processes_without_a_connection() {
        let place = tempfile::tempdir().unwrap();
        let (daemon, acceptor) = daemon_in(place.path());
        let admitted = daemon.jobs.admit(&request(1), &"admin".parse().unwrap()).unwrap();
        let (to_process, mut deliveries) = mpsc::channel(1);
        admitted.job.set_deliveries(to_process);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let serving = tokio::spawn(serve(daemon.clone(), listener, acceptor));
        sleep(CHECK_EVERY).await;
        deliveries.try_recv().unwrap_err();
        let (authority, name) = (Authority::open(place.path()).unwrap(), "ann".parse().unwrap());
        authority.make_member(&name, Role::Viewer).unwrap();
        let (list, _) = authority.revoke(&name).unwrap();
        fs::copy(list, place.path().join("a/revoked.pem")).unwrap();
        // The clock of this test goes on by itself.
        sleep(2 * CHECK_EVERY).await;
        assert!(!daemon.signing_authority().revoked.is_empty());
        assert!(deliveries.try_recv().unwrap().package.is_empty(), "the list alone");
        serving.abort();
    }
}

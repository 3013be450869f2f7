//! Calls of daemons: one request, and its answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use daemon_protocol::{Answer, CHUNK, Name, PackagePart, Process, Request};
use gossamer_job::JobId;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connection::{ConnectionError, Receiver, Sender};
use crate::escape;
use crate::security::identity::{Hosts, Identity};
use crate::security::tls::{self, TlsError};

/// How long a daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that one caller makes at a time. A daemon limits the connections without a request and
/// closes the oldest ones; a job may have many processes on one host.
const AT_ONCE: usize = 16;

/// Processes that a job may have on one host: no daemon runs more.
pub(crate) const PROCESSES: usize = 256;

/// Bytes of the longest list that a daemon may answer. The list of a host that runs as many processes
/// as it can, with many threads each, is a tenth as long.
const LONGEST_LIST: u64 = 64 << 20;

pub(crate) type FromHost = Receiver<ReadHalf<TlsStream<TcpStream>>>;
pub(crate) type ToHost = Sender<WriteHalf<TlsStream<TcpStream>>>;

/// A daemon did not answer, or refused.
#[derive(Debug, Error)]
pub enum CallError {
    /// The rack has no such host.
    #[error("unknown host {host}: `hosts.toml` lists {known}")]
    UnknownHost {
        /// The host.
        host: Name,
        /// Those that are known.
        known: String,
    },
    /// The connection could not be made.
    #[error("{host}: cannot connect to its daemon at {address}")]
    Connect {
        /// The host.
        host: Name,
        /// Its address.
        address: String,
        /// What is wrong.
        #[source]
        error: io::Error,
    },
    /// The connection broke, or the daemon refused the certificate.
    #[error("{host}: lost the connection to its daemon")]
    Connection {
        /// The host.
        host: Name,
        /// What is wrong.
        #[source]
        error: ConnectionError,
    },
    /// The daemon refused.
    #[error("{host}: {reason}")]
    Refused {
        /// The host.
        host: Name,
        /// Why.
        reason: String,
    },
    /// The identity cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Calls daemons as one member of the rack.
#[derive(Clone)]
pub struct Caller {
    pub(crate) rack: Name,
    hosts: Arc<Hosts>,
    connector: TlsConnector,
    turns: Arc<Semaphore>,
}

impl Caller {
    /// Calls as the member that `identity` is.
    ///
    /// # Errors
    /// [`CallError::Tls`], if the identity cannot be used.
    pub fn new(identity: &Identity) -> Result<Self, CallError> {
        let connector = TlsConnector::from(tls::client(identity)?);
        let hosts = Arc::new(identity.hosts.clone());
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        Ok(Self { rack: identity.member.rack.clone(), hosts, connector, turns })
    }

    /// The hosts that are known.
    pub fn hosts(&self) -> Vec<Name> {
        self.hosts.hosts.keys().cloned().collect()
    }

    /// Connects to the daemon of `host` and sends a request.
    pub(crate) async fn connect(
        &self,
        host: &Name,
        request: &Request,
    ) -> Result<(FromHost, ToHost), CallError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let Some(address) = self.hosts.hosts.get(host) else {
            let known: Vec<_> = self.hosts.hosts.keys().map(Name::as_str).collect();
            return Err(CallError::UnknownHost { host: host.clone(), known: known.join(", ") });
        };
        let connect = async {
            let name = ServerName::try_from(host.as_str().to_owned()).map_err(io::Error::other)?;
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            self.connector.connect(name, stream).await
        };
        let connected = match timeout(TIMEOUT, connect).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
        };
        let (name, address) = (host.clone(), address.clone());
        let stream =
            connected.map_err(|error| CallError::Connect { host: name, address, error })?;
        let (reading, writing) = split(stream);
        let mut to = Sender::new(writing);
        let failed = |error| CallError::Connection { host: host.clone(), error };
        to.send(request).await.map_err(failed)?;
        Ok((Receiver::new(reading), to))
    }

    /// Sends a request to one daemon, and passes its answers to `take` until that has enough.
    ///
    /// # Errors
    /// [`CallError`], also if `take` refuses an answer.
    pub async fn ask_on(
        &self,
        host: &Name,
        request: &Request,
        take: impl FnMut(Answer) -> Next,
    ) -> Result<(), CallError> {
        self.ask_within(host, request, u64::MAX, take).await
    }

    /// As [`ask_on`](Self::ask_on), for answers of at most `longest` bytes together.
    async fn ask_within(
        &self,
        host: &Name,
        request: &Request,
        longest: u64,
        mut take: impl FnMut(Answer) -> Next,
    ) -> Result<(), CallError> {
        let failed = |error| CallError::Connection { host: host.clone(), error };
        // The other direction stays open: closing it would end the request.
        let (mut from, _to) = self.connect(host, request).await?;
        loop {
            let answer = from.receive(TIMEOUT).await.map_err(failed)?;
            if from.received() > longest {
                let text = format!("a list larger than {longest} bytes");
                return Err(failed(ConnectionError::Violation(text)));
            }
            match answer {
                Answer::Heartbeat => {}
                Answer::Refused(reason) => {
                    let reason = escape::name(&reason).into_owned();
                    return Err(CallError::Refused { host: host.clone(), reason });
                }
                answer => match take(answer) {
                    Next::More => {}
                    Next::Enough => return Ok(()),
                    Next::Refuse(why) => return Err(failed(ConnectionError::Violation(why))),
                },
            }
        }
    }

    /// Brings a package into the processes of a job on one host, and passes each answer to `take`.
    /// Returns the name of the package's signer; `None` if the job does not run there.
    ///
    /// # Errors
    /// [`CallError`], also if the daemon refuses the package.
    pub async fn send_package(
        &self,
        host: &Name,
        job: JobId,
        package: &[u8],
        mut take: impl FnMut(Process, Option<String>),
    ) -> Result<Option<String>, CallError> {
        let failed = |error| CallError::Connection { host: host.clone(), error };
        let violation = |what: &str| failed(ConnectionError::Violation(what.to_owned()));
        let request = Request::Package { job, bytes: package.len() as u64 };
        let (mut from, mut to) = self.connect(host, &request).await?;
        let mut has_sent = false;
        let mut processes = 0;
        loop {
            match from.receive(TIMEOUT).await.map_err(failed)? {
                Answer::Heartbeat => {}
                Answer::Refused(reason) => {
                    let reason = escape::name(&reason).into_owned();
                    return Err(CallError::Refused { host: host.clone(), reason });
                }
                Answer::SendPackage if !has_sent => {
                    has_sent = true;
                    for part in package.chunks(CHUNK) {
                        to.send(&PackagePart(part.to_vec())).await.map_err(failed)?;
                    }
                }
                Answer::Package { process, refused } if has_sent && processes < PROCESSES => {
                    processes += 1;
                    take(process, refused.map(|reason| escape::name(&reason).into_owned()));
                }
                Answer::PackageEnd(signer) => {
                    return Ok(signer.map(|name| escape::name(&name).into_owned()));
                }
                _ => return Err(violation("an answer to another request")),
            }
        }
    }

    /// Sends a request with one answer to one daemon.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn ask(&self, host: &Name, request: &Request) -> Result<Answer, CallError> {
        let mut answer = None;
        let take = |first| {
            answer = Some(first);
            Next::Enough
        };
        self.ask_on(host, request, take).await?;
        let closed = CallError::Connection { host: host.clone(), error: ConnectionError::Closed };
        answer.ok_or(closed)
    }

    /// Sends a request to many daemons at a time; the answers are in the order of `hosts`.
    pub async fn ask_all(
        &self,
        hosts: &[Name],
        request: &Request,
    ) -> Vec<(Name, Result<Answer, CallError>)> {
        let ask = |caller: Self, host| {
            let request = request.clone();
            async move { caller.ask(&host, &request).await }
        };
        self.on_all(hosts, ask).await
    }

    /// Requests a list from many daemons at a time. `take` finds the next item in each answer, and none
    /// in the last one. The lists are in the order of `hosts`.
    pub async fn list_all<T: Send + 'static>(
        &self,
        hosts: &[Name],
        request: &Request,
        take: fn(Answer) -> Option<T>,
    ) -> Vec<(Name, Result<Vec<T>, CallError>)> {
        let ask = |caller: Self, host| {
            let request = request.clone();
            async move {
                let mut list = Vec::new();
                let take = |answer| match take(answer) {
                    Some(item) => {
                        list.push(item);
                        Next::More
                    }
                    None => Next::Enough,
                };
                let asked = caller.ask_within(&host, &request, LONGEST_LIST, take).await;
                asked.map(|()| list)
            }
        };
        self.on_all(hosts, ask).await
    }

    async fn on_all<T, F>(
        &self,
        hosts: &[Name],
        ask: impl Fn(Self, Name) -> F,
    ) -> Vec<(Name, Result<T, CallError>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let mut asking = JoinSet::new();
        for (number, host) in hosts.iter().cloned().enumerate() {
            let answer = ask(self.clone(), host.clone());
            asking.spawn(async move { (number, (host, answer.await)) });
        }
        let mut answers = asking.join_all().await;
        answers.sort_by_key(|(number, _)| *number);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// Whether a caller wants more answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Yes.
    More,
    /// No.
    Enough,
    /// No: the answer violates the protocol, for this reason.
    Refuse(String),
}

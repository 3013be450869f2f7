//! Connections to daemons without the `gossamer` command, for what it would never send, and daemons
//! that are not `gossamerd`.

use std::sync::Arc;
use std::time::Duration;

use daemon_protocol::{Answer, Request};
use gossamer_daemon::connection::{ConnectionError, Receiver, Sender};
use gossamer_daemon::security::identity::Identity;
use gossamer_daemon::security::tls;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Rack;

/// How long an answer may take that has to come.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

type Stream = TlsStream<TcpStream>;

/// The two ends of a connection to a daemon.
pub(crate) type Connection = (Receiver<ReadHalf<Stream>>, Sender<WriteHalf<Stream>>);

/// Connects to the daemon of the rack's first host, which is called `a`.
pub(crate) async fn connect(rack: &Rack, config: Arc<ClientConfig>) -> std::io::Result<Stream> {
    let stream = TcpStream::connect(rack.address(0)).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(config).connect(ServerName::try_from("a").unwrap(), stream).await
}

/// The two ends of a connection.
pub(crate) fn ends<S>(stream: S) -> (Receiver<ReadHalf<S>>, Sender<WriteHalf<S>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (reading, writing) = split(stream);
    (Receiver::new(reading), Sender::new(writing))
}

/// What the daemon answers first, and the connection, which is still open.
pub(crate) async fn call(
    rack: &Rack,
    config: Arc<ClientConfig>,
    request: &Request,
) -> Result<(Answer, Connection), ConnectionError> {
    let (mut from, mut to) = ends(connect(rack, config).await?);
    to.send(request).await?;
    Ok((from.receive(TIMEOUT).await?, (from, to)))
}

/// The answer of the daemon to a caller with `config`.
pub(crate) async fn ask(
    rack: &Rack,
    config: Arc<ClientConfig>,
    request: &Request,
) -> Result<Answer, ConnectionError> {
    Ok(call(rack, config, request).await?.0)
}

/// The identity of a member of the rack, or of a host.
pub(crate) fn member(rack: &Rack, name: &str) -> Identity {
    Identity::load(&rack.place.path().join("rack").join(name)).unwrap()
}

/// How a member of the rack connects.
pub(crate) fn as_member(rack: &Rack, name: &str) -> Arc<ClientConfig> {
    tls::client(&member(rack, name)).unwrap()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

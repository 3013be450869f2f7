//! A daemon that has the certificate of a host, and says what a test wants.

use std::fs;

use daemon_protocol::{FromController, FromDaemon, Request};
use gossamer_daemon::security::identity::Identity;
use gossamer_daemon::security::tls;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Rack;
use super::calls::{TIMEOUT, ends, member};

type Receiver = gossamer_daemon::connection::Receiver<ReadHalf<TlsStream<TcpStream>>>;
type Sender = gossamer_daemon::connection::Sender<WriteHalf<TlsStream<TcpStream>>>;

/// Listens in place of the daemon of host `a`.
pub(crate) struct FalseDaemon {
    listener: TcpListener,
    identity: Identity,
}

impl FalseDaemon {
    pub(crate) async fn new(rack: &Rack) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hosts = format!("[hosts]\na = \"{}\"\n", listener.local_addr().unwrap());
        fs::write(rack.path("rack/admin/hosts.toml"), hosts).unwrap();
        Self { listener, identity: member(rack, "a") }
    }

    /// The next caller, and what it asks.
    pub(crate) async fn accept(&self) -> (Request, Receiver, Sender) {
        let (stream, _) = self.listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let acceptor = TlsAcceptor::from(tls::server(&self.identity).unwrap());
        let (mut from, to) = ends(acceptor.accept(stream).await.unwrap());
        (from.receive(TIMEOUT).await.unwrap(), from, to)
    }

    /// Serves a job until its process is reported as started.
    pub(crate) async fn start(&self) -> (Receiver, Sender) {
        let (request, mut from, mut to) = self.accept().await;
        assert!(matches!(request, Request::Run(_)), "{request:?}");
        to.send(&prepared()).await.unwrap();
        while !matches!(from.receive(TIMEOUT).await.unwrap(), FromController::Start(_)) {}
        to.send(&FromDaemon::Started { pid: 1 }).await.unwrap();
        (from, to)
    }
}

pub(crate) fn prepared() -> FromDaemon {
    FromDaemon::Prepared { address: ([127, 0, 0, 1], 1).into(), owns_cores: false }
}

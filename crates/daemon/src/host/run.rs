//! `gossamerd`: the life of a daemon, from its settings to SIGTERM.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon_protocol::{EndedBy, Role};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::host::config::Config;
use crate::host::daemon::Daemon;
use crate::host::jobs::Jobs;
use crate::host::metrics::{self, Counts};
use crate::host::packages::Places;
use crate::host::server;
use crate::host::state::{State, StateError};
use crate::process::cgroups::Cgroups;
use crate::process::open_files;
use crate::process::supervisors::Supervisors;
use crate::security::acceptor::{Acceptor, AcceptorError};
use crate::security::identity::Identity;
use crate::security::member::{IdentityError, Member};

/// How long the processes of jobs may take to end when the daemon stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);
/// Interval at which the daemon retries to end processes and remove files.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// Connections that wait to be accepted. With the standard library's 128, a peer that floods the
/// daemon makes the kernel drop the connection requests of others, which try again after a second.
const BACKLOG: u32 = 4096;

/// A daemon cannot start.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Its certificate or key is not usable.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its certificate is not that of a host.
    #[error("the certificate names the {role} {name}: a daemon needs the certificate of a host")]
    NotAHost {
        /// The role in the certificate.
        role: Role,
        /// The name in it.
        name: String,
    },
    /// TLS does not accept its certificate, key or list.
    #[error(transparent)]
    Acceptor(#[from] AcceptorError),
    /// Its directory is not usable.
    #[error(transparent)]
    State(#[from] StateError),
    /// It cannot listen.
    #[error("cannot listen at {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// A system call failed.
    #[error("a system call that the daemon needs failed")]
    System(#[from] io::Error),
}

/// Removes quarantined files whenever it is notified.
async fn sweep(daemon: Arc<Daemon>) {
    loop {
        let daemon_too = daemon.clone();
        // The task does not panic.
        let _ = spawn_blocking(move || daemon_too.sweep()).await;
        tokio::select! {
            () = daemon.sweep.notified() => {}
            () = sleep(SWEEP_EVERY) => {}
        }
    }
}

/// Runs a daemon until SIGTERM or SIGINT, and then ends its jobs.
///
/// # Errors
/// [`DaemonError`], if it cannot begin.
pub async fn run(config: Config) -> Result<(), DaemonError> {
    let identity = Identity::load(&config.identity)?;
    if identity.member.role != Role::Host {
        let Member { role, name, .. } = identity.member;
        return Err(DaemonError::NotAHost { role, name: name.to_string() });
    }
    let Member { rack, name, .. } = &identity.member;
    let span = tracing::info_span!("daemon", %rack, host = %name);
    serve(config, identity).instrument(span).await
}

async fn serve(config: Config, identity: Identity) -> Result<(), DaemonError> {
    let member = identity.member.clone();
    let open_files = open_files::raise();
    let supervisors = Supervisors::adopt()?;
    let state = State::open(&config.state, config.store_bytes)?;
    let acceptor = Acceptor::new(identity, config.identity.clone(), &config.state)?;
    let cgroups = Cgroups::take();
    match &cgroups {
        Ok(cgroups) => {
            tracing::info!(root = %cgroups.root().display(), "using a cgroup for each process");
            cgroups.clean()?;
        }
        Err(reason) => tracing::info!(reason, "running without cgroups"),
    }
    let (listener, address) = listen(config.listen)?;
    let (jobs, counts) = (Arc::<Jobs>::default(), Arc::<Counts>::default());
    if let Some(address) = config.metrics {
        let (listener, address) = listen(address)?;
        tracing::info!(%address, "serving metrics");
        let host = member.name.clone();
        tokio::spawn(metrics::serve(listener, host, counts.clone(), jobs.clone()));
    }
    state.note_address(address)?;
    let sweep_now = Notify::new();
    let daemon = Daemon {
        identity: member,
        config,
        state,
        jobs,
        counts,
        supervisors,
        open_files,
        cgroups,
        sweep: sweep_now,
        signing: Mutex::new(acceptor.signing()),
        packages: Places::default(),
    };
    let daemon = Arc::new(daemon);
    let sweeping = tokio::spawn(sweep(daemon.clone()).in_current_span());
    tracing::info!(%address, "serving");
    let mut stop = Stop::new()?;
    tokio::select! {
        never = server::serve(daemon.clone(), listener, acceptor) => match never {},
        () = stop.requested() => {}
    }
    tracing::info!("stopping");
    daemon.jobs.close(&EndedBy::Daemon("it is stopping".into()), SHUTDOWN_GRACE).await;
    // The next daemon removes the rest.
    sweeping.abort();
    let _ = timeout(SHUTDOWN_GRACE, spawn_blocking(move || daemon.state.sweep())).await;
    Ok(())
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), DaemonError> {
    let failed = |error| DaemonError::Listen(address, error);
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bind = |socket: TcpSocket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    socket.and_then(bind).map_err(failed)
}

/// The signals that end a daemon.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

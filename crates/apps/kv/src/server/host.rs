//! The server on one host: its listeners, and the end of its connections.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gossamer::{Polled, Readiness};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::memcached::{Shards, balance_memory};
use crate::server::Options;
use crate::server::client::{self, Entry};
use crate::server::counters::{HostState, unix_time};
use crate::server::rack::RackShards;
use crate::server::socket::Listener;

/// Time until the next `accept` after one failed, for example because descriptors ran out.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(10);

/// What memcached sends to connections beyond the limit.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Time between two looks for idle connections.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two looks at whether shards evict items while others hold older ones.
const BALANCE_INTERVAL: Duration = Duration::from_millis(200);

/// Time between two looks at whether a server that drains has ended its connections.
const DRAIN_INTERVAL: Duration = Duration::from_millis(5);

/// The server of this process, for [`drain`], which the first host calls on each.
static SERVER: Mutex<Option<Arc<HostState>>> = Mutex::new(None);

/// How many connections a drained server had: those that ended, and those that were left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Those that have ended.
    pub ended: usize,
    /// Those that have not.
    pub left: usize,
}

/// A server that accepts connections on this host.
#[derive(Clone, Debug)]
pub struct Host {
    state: Arc<HostState>,
}

impl Host {
    /// Listens, and serves connections in fibers of this host; returns with the TCP address, if there
    /// is one.
    ///
    /// # Errors
    /// If an address cannot be bound, for example because the port is in use, the Unix socket cannot be made,
    /// or a listener cannot be polled.
    ///
    /// # Panics
    /// Outside a fiber of a rack.
    pub fn start(
        shards: Arc<dyn Shards + Send + Sync>,
        mut options: Options,
    ) -> io::Result<(Self, Option<SocketAddr>)> {
        let mut listeners = Vec::new();
        if let Some(address) = options.address {
            let listener = Listener::tcp(address, options.shares_port)
                .map_err(|error| cannot_listen(address, &error))?;
            options.address = listener.address();
            listeners.push(listener);
        }
        let is_first = gossamer::hosts().next() == Some(gossamer::local_host());
        if let Some(path) = options.unix.as_ref().filter(|_| is_first) {
            let listener = Listener::unix(Path::new(path));
            listeners.push(listener.map_err(|error| cannot_listen(path, &error))?);
        }
        let polled = |listener: Listener| {
            let name = listener.name();
            Polled::new(listener).map_err(|error| cannot_listen(name, &error))
        };
        let listeners: Vec<_> = listeners.into_iter().map(polled).collect::<Result<_, _>>()?;
        let address = options.address;
        let names = listeners.iter().map(|listener| listener.get().name()).collect();
        let idle = options.idle;
        let state = Arc::new(HostState::new(options, shards, names));
        for listener in listeners {
            let state = state.clone();
            // On this thread, which polls the listener.
            drop(fiber::spawn_local(move || accept(&listener, &state)));
        }
        if let Some(idle) = idle {
            let state = state.clone();
            drop(fiber::spawn_local(move || {
                while !state.drains.load(Ordering::Acquire) {
                    gossamer::sleep(IDLE_INTERVAL);
                    state.end_idle(idle, unix_time());
                }
            }));
        }
        let shards = state.shards.local_shards();
        if shards.len() > 1 {
            let state = state.clone();
            drop(fiber::spawn_local(move || {
                while !state.drains.load(Ordering::Acquire) {
                    gossamer::sleep(BALANCE_INTERVAL);
                    balance_memory(&*state.shards, &shards, unix_time());
                }
            }));
        }
        Ok((Self { state }, address))
    }

    /// Accepts no further connections, ends the input of the others, which run and answer what they
    /// have received, and waits until they have ended, `timeout` at most.
    ///
    /// # Panics
    /// Outside a fiber of a rack.
    #[must_use]
    pub fn drain(&self, timeout: Duration) -> Drained {
        let start = Instant::now();
        // Before, since those without input may end at once.
        let all = self.state.connections();
        self.state.drain();
        while self.state.connections() > 0 && start.elapsed() < timeout {
            gossamer::sleep(DRAIN_INTERVAL);
        }
        let left = self.state.connections();
        Drained { ended: all.saturating_sub(left), left }
    }
}

/// Checks that nothing listens on a TCP address of the calling host. Returns the address, with a free
/// port in place of 0. All hosts run this check before the first one listens: a listener found then
/// belongs to another rack, which stores other items.
///
/// # Errors
/// As text, since it crosses the rack: if something listens there, or the address cannot be bound.
pub fn find_free(address: SocketAddr) -> Result<SocketAddr, String> {
    Listener::find_free(address).map_err(|error| cannot_listen(address, &error).to_string())
}

/// An error of the system that names where the server cannot listen.
fn cannot_listen(at: impl fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {at}: {error}"))
}

/// Starts the server on the host that calls it; the TCP address.
///
/// # Errors
/// As text, since it crosses the rack: those of [`Host::start`].
///
/// # Panics
/// Outside a fiber of a rack.
pub fn serve((shards, options): (RackShards, Options)) -> Result<Option<SocketAddr>, String> {
    let (host, address) =
        Host::start(Arc::new(shards), options).map_err(|error| error.to_string())?;
    *SERVER.lock() = Some(host.state);
    Ok(address)
}

/// The server that [`serve`] has started on this host.
pub(super) fn running() -> Option<Arc<HostState>> {
    SERVER.lock().clone()
}

/// Drains the server that [`serve`] has started on this host, for `timeout` at most.
///
/// # Panics
/// Outside a fiber of a rack.
#[must_use]
pub fn drain(timeout: Duration) -> Drained {
    running().map(|state| Host { state }.drain(timeout)).unwrap_or_default()
}

/// Accepts connections until the server drains.
fn accept(listener: &Polled<Listener>, state: &Arc<HostState>) {
    let name: Arc<str> = listener.get().name().into();
    while !state.drains.load(Ordering::Acquire) {
        match listener.try_read_with(Listener::accept) {
            Some(Ok((socket, _))) if state.connections() >= state.options.connections_max => {
                state.rejected.fetch_add(1, Ordering::Relaxed);
                // A new socket takes as much, or its client is gone.
                let _ = socket.write(&[IoSlice::new(TOO_MANY)]);
            }
            Some(Ok((socket, peer))) => {
                let (number, client) = state.connected(socket.clone(), peer, name.clone());
                let entry = Entry { host: state.clone(), number };
                drop(gossamer::spawn(move || client::adopt(socket, client, entry)));
            }
            // The second one: a client has disconnected.
            Some(Err(error))
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            // Descriptors or memory have run out.
            Some(Err(_)) => {
                let start = Instant::now();
                gossamer::sleep(ACCEPT_INTERVAL);
                let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                state.listen_disabled.fetch_add(1, Ordering::Relaxed);
                state.listen_disabled_micros.fetch_add(micros, Ordering::Relaxed);
            }
            None => {
                let look_again = Instant::now() + 20 * ACCEPT_INTERVAL;
                listener.wait(Readiness::Readable, Some(look_again));
            }
        }
    }
}

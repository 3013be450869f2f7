//! The I/O thread: every socket, and nothing else.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use super::super::memcached::Connection;
use super::facts::ServerFacts;
use super::job::{ConnectionId, Done, Execute, Job, ReturnPath};

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Bytes that one read takes, at most.
const READ_BYTES: usize = 64 * 1024;

/// Reads from one connection before the others get their turn.
const READS_PER_TURN: usize = 8;

/// How long accepting rests after the system refused a connection, as when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a server serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at a time; further ones wait in the listener's queue.
    pub connections_max: usize,
    /// Threads that run requests, as `stats` reports them.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections_max: 1024, threads: 1 }
    }
}

/// A listening server; [`Server::run`] serves.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    listener: TcpListener,
    options: Options,
    clients: Slab<Client>,
    next_serial: u64,
    done: Receiver<Done>,
    back: ReturnPath,
    stop: Arc<AtomicBool>,
    /// There may be connections to accept.
    acceptable: bool,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl StopHandle {
    /// Makes [`Server::run`] return. Connections are closed; jobs under way end unheard.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.waker.wake();
    }
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    connection: Connection,
    serial: u64,
    /// The socket may have more to read; the poll reports it only once.
    readable: bool,
    /// The socket may take more; likewise.
    writable: bool,
    /// In the list of those that want another turn.
    queued: bool,
}

/// What a client's turn came to.
enum Turn {
    Waits,
    WantsAnother,
    Ended,
}

impl Server {
    /// Listens on `address`.
    ///
    /// # Errors
    /// Those of binding, as when the port is taken.
    pub fn bind(address: SocketAddr, options: Options) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (sender, done) = mpsc::channel();
        let facts = Arc::new(ServerFacts::new(options.threads));
        Ok(Self {
            poll,
            listener,
            options,
            clients: Slab::new(),
            next_serial: 0,
            done,
            back: ReturnPath { done: sender, waker, facts },
            stop: Arc::new(AtomicBool::new(false)),
            acceptable: true,
        })
    }

    /// The address it listens on, with the port that was chosen for port 0.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle that ends [`Server::run`].
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { stop: Arc::clone(&self.stop), waker: Arc::clone(&self.back.waker) }
    }

    /// Serves until it is stopped. Troubles of one connection end that connection only.
    ///
    /// # Errors
    /// When the system's poll fails.
    pub fn run(mut self, executor: &dyn Execute) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut scratch = vec![0; READ_BYTES];
        let mut turns: Vec<usize> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let timeout = if !turns.is_empty() {
                Some(Duration::ZERO)
            } else if self.acceptable && self.clients.len() < self.options.connections_max {
                Some(ACCEPT_PAUSE)
            } else {
                None
            };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.acceptable = true,
                    WAKER => {}
                    Token(slot) => {
                        if let Some(client) = self.clients.get_mut(slot) {
                            client.readable |= event.is_readable() || event.is_read_closed();
                            client.writable |= event.is_writable() || event.is_write_closed();
                            queue(client, slot, &mut turns);
                        }
                    }
                }
            }
            self.accept(&mut turns);
            self.take_back(&mut turns);
            for slot in std::mem::take(&mut turns) {
                let Some(client) = self.clients.get_mut(slot) else { continue };
                client.queued = false;
                match client.turn(slot, executor, &self.back, &mut scratch) {
                    Turn::Waits => {}
                    Turn::WantsAnother => queue(client, slot, &mut turns),
                    Turn::Ended => self.remove(slot),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, turns: &mut Vec<usize>) {
        while self.acceptable && self.clients.len() < self.options.connections_max {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream, turns),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.acceptable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The client is gone already, or descriptors have run out; `acceptable` stays set,
                // so the next attempt comes after a pause.
                Err(_) => return,
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream, turns: &mut Vec<usize>) {
        let entry = self.clients.vacant_entry();
        let slot = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        // A connection that cannot be polled is dropped, which closes it. Answers must not wait for
        // more of them; where that cannot be set, they only come later.
        let _ = stream.set_nodelay(true);
        if self.poll.registry().register(&mut stream, Token(slot), interest).is_err() {
            return;
        }
        self.next_serial += 1;
        entry.insert(Client {
            stream,
            connection: Connection::new(),
            serial: self.next_serial,
            readable: true,
            writable: true,
            queued: true,
        });
        turns.push(slot);
        self.back.facts.curr_connections.fetch_add(1, Ordering::Relaxed);
        self.back.facts.total_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Hands the output of finished jobs to their connections.
    fn take_back(&mut self, turns: &mut Vec<usize>) {
        for done in self.done.try_iter() {
            let ConnectionId { slot, serial } = done.connection;
            let Some(client) = self.clients.get_mut(slot).filter(|c| c.serial == serial) else {
                continue;
            };
            match done.progress {
                Some(progress) => {
                    client.connection.completed(progress);
                    queue(client, slot, turns);
                }
                None => remove(&mut self.clients, &self.poll, &self.back, slot),
            }
        }
    }

    fn remove(&mut self, slot: usize) {
        remove(&mut self.clients, &self.poll, &self.back, slot);
    }
}

fn queue(client: &mut Client, slot: usize, turns: &mut Vec<usize>) {
    if !client.queued {
        client.queued = true;
        turns.push(slot);
    }
}

fn remove(clients: &mut Slab<Client>, poll: &Poll, back: &ReturnPath, slot: usize) {
    let mut client = clients.remove(slot);
    // Closing the descriptor takes it out of the poll as well.
    let _ = poll.registry().deregister(&mut client.stream);
    back.facts.curr_connections.fetch_sub(1, Ordering::Relaxed);
}

impl Client {
    /// Sends, runs and reads what can be sent, run and read without waiting.
    fn turn(
        &mut self,
        slot: usize,
        executor: &dyn Execute,
        back: &ReturnPath,
        scratch: &mut [u8],
    ) -> Turn {
        for _ in 0..READS_PER_TURN {
            if self.send().is_err() {
                return Turn::Ended;
            }
            if let Some(batch) = self.connection.next_batch() {
                let connection = ConnectionId { slot, serial: self.serial };
                executor.start(Job::new(connection, batch, back.clone()));
            }
            if self.connection.is_finished() {
                return Turn::Ended;
            }
            if !self.readable || !self.connection.wants_input() {
                return Turn::Waits;
            }
            match self.stream.read(scratch) {
                Ok(0) => {
                    self.readable = false;
                    self.connection.input_ended();
                }
                Ok(length) => self.connection.received(&scratch[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Turn::Ended,
            }
        }
        Turn::WantsAnother
    }

    fn send(&mut self) -> io::Result<()> {
        while self.writable && !self.connection.output().is_empty() {
            match self.stream.write(self.connection.output()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => self.connection.sent(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

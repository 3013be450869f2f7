//! Commands that panic or wait, connections that are always ready, and large values that are stored at the
//! same time: how many fibers serve them, what the other connections notice, and what memory they take.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::TestServer;
use crate::memcached::Shards;
use crate::memcached::local::LocalShards;
use crate::server::{Options, pool};
use crate::store::{Control, Request, Response, Seconds};

/// A store whose calls panic for one key, wait for two others until the test releases them, and count.
struct FaultyStore {
    shards: LocalShards,
    /// Ends the wait.
    is_released: AtomicBool,
    /// At a call for `counts`: the most fibers that a thread had waiting for connections.
    idle_fibers: AtomicUsize,
    /// The calls for `stores` that have waited.
    waiting_stores: AtomicUsize,
}

impl FaultyStore {
    fn wait(&self) {
        while !self.is_released.load(Ordering::Acquire) {
            gossamer::sleep(Duration::from_millis(1));
        }
    }
}

impl Shards for FaultyStore {
    fn call(&self, request: Request, now: Seconds) -> Response {
        match request.key() {
            b"panics" => panic!("a test's panic"),
            b"counts" => {
                self.idle_fibers.fetch_max(pool::idle_fibers(), Ordering::Relaxed);
            }
            b"waits" => self.wait(),
            b"stores" => {
                self.waiting_stores.fetch_add(1, Ordering::AcqRel);
                self.wait();
            }
            _ => {}
        }
        self.shards.call(request, now)
    }

    fn control(&self, control: Control, now: Seconds) -> Vec<Response> {
        self.shards.control(control, now)
    }

    fn control_one(&self, shard: usize, control: Control, now: Seconds) -> Option<Response> {
        self.shards.control_one(shard, control, now)
    }

    fn sleep_micros(&self, micros: u32) {
        self.shards.sleep_micros(micros);
    }
}

/// A server and its store.
fn faulty_server(options: Options) -> (TestServer, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore {
        shards: LocalShards::new(1, None),
        is_released: AtomicBool::new(false),
        idle_fibers: AtomicUsize::new(0),
        waiting_stores: AtomicUsize::new(0),
    });
    let shards = store.clone();
    (TestServer::with_shards(options, || shards), store)
}

/// Each time that a fiber yields, all others still have connections to serve.
#[test]
fn connections_that_are_always_ready_are_served_by_few_fibers() {
    const CONNECTIONS: usize = 100;
    let (server, store) = faulty_server(Options::default());
    let value = vec![b'v'; 8000];
    let mut sets = Vec::new();
    for _ in 0..200 {
        sets.extend_from_slice(b"set k 0 0 8000 noreply\r\n");
        sets.extend_from_slice(&value);
        sets.extend_from_slice(b"\r\n");
    }
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        for stream in &mut streams {
            let sets = &sets;
            scope.spawn(move || {
                stream.write_all(sets).unwrap();
                stream.write_all(b"get missing\r\n").unwrap();
                stream.read_exact(&mut [0; 5]).unwrap();
            });
        }
    });
    for stream in &mut streams {
        stream.write_all(b"get counts\r\n").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    let fibers = store.idle_fibers.load(Ordering::Relaxed);
    assert!(fibers <= 2, "{fibers} fibers of a thread served {CONNECTIONS} connections");
}

/// The fiber that runs the command serves other connections, too.
#[test]
fn a_command_that_panics_or_waits_affects_only_its_connection() {
    let (server, store) = faulty_server(Options::default());
    for _ in 0..4 {
        store.is_released.store(false, Ordering::Release);
        let mut others: Vec<_> = (0..8).map(|_| server.connect()).collect();
        let mut slow = server.connect();
        slow.write_all(b"get waits\r\n").unwrap();
        assert_eq!(server.exchange(b"get panics\r\n"), "");
        let mut answer = [0; 5];
        for other in &mut others {
            other.write_all(b"get k\r\n").unwrap();
            other.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"END\r\n");
        }
        store.is_released.store(true, Ordering::Release);
        slow.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"END\r\n");
    }
}

/// A store that counts commands, of which one waits until all others have come, and one blocks the thread
/// until the test has sent these.
#[derive(Default)]
struct CountingStore {
    is_blocking: AtomicBool,
    /// Whether the test has sent the commands.
    are_sent: AtomicBool,
    commands: AtomicUsize,
    /// The client of the first command, which does not block, until its answer has been seen.
    first: Mutex<Option<TcpStream>>,
    /// How many commands had come by then.
    answered_at: AtomicUsize,
}

impl CountingStore {
    const COMMANDS: usize = 400;
}

impl Shards for CountingStore {
    fn call(&self, request: Request, _now: Seconds) -> Response {
        match request.key() {
            b"waits" => {
                while self.commands.load(Ordering::Acquire) < Self::COMMANDS {
                    gossamer::sleep(Duration::from_millis(1));
                }
            }
            b"blocks" => {
                self.is_blocking.store(true, Ordering::Release);
                while !self.are_sent.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
            _ => {
                let commands = self.commands.fetch_add(1, Ordering::AcqRel) + 1;
                let mut first = self.first.lock().unwrap();
                if first.take_if(|first| first.peek(&mut [0]).is_ok()).is_some() {
                    self.answered_at.store(commands, Ordering::Release);
                }
            }
        }
        Response::Miss
    }

    fn control(&self, _control: Control, _now: Seconds) -> Vec<Response> {
        Vec::new()
    }

    fn control_one(&self, _shard: usize, _control: Control, _now: Seconds) -> Option<Response> {
        None
    }

    fn sleep_micros(&self, _micros: u32) {}
}

/// While a command waits, the fiber that serves the others yields before it sends their answers, and finds
/// more connections to serve each time.
#[test]
fn answers_are_sent_although_more_and_more_connections_are_ready() {
    let store = Arc::new(CountingStore::default());
    let shards = store.clone();
    // All connections on one thread.
    let server = TestServer::on_threads(1, Options::default(), || shards);
    let mut clients: Vec<_> = (0..CountingStore::COMMANDS).map(|_| server.connect()).collect();
    let [mut waiting, mut blocking] = [(); 2].map(|()| server.connect());
    // They were accepted in this order.
    let stats = server.exchange(b"stats\r\n");
    let all = CountingStore::COMMANDS + 3;
    assert!(stats.contains(&format!("STAT curr_connections {all}\r\n")), "{stats}");
    let first = clients[0].try_clone().unwrap();
    first.set_nonblocking(true).unwrap();
    *store.first.lock().unwrap() = Some(first);
    waiting.write_all(b"get waits\r\n").unwrap();
    blocking.write_all(b"get blocks\r\n").unwrap();
    while !store.is_blocking.load(Ordering::Acquire) {
        thread::yield_now();
    }
    for client in &mut clients {
        client.write_all(b"get k\r\n").unwrap();
    }
    store.are_sent.store(true, Ordering::Release);
    // Once this one is answered, nothing looks for the first answer any more.
    waiting.read_exact(&mut [0; 5]).unwrap();
    clients[0].set_nonblocking(false).unwrap();
    for client in clients.iter_mut().chain([&mut blocking]) {
        client.read_exact(&mut [0; 5]).unwrap();
    }
    let commands = store.answered_at.load(Ordering::Acquire);
    assert!((1..=200).contains(&commands), "answered after {commands} commands");
}

/// A large value is in memory twice while its command runs: as received, and as sent to its shard.
#[test]
fn running_commands_count_against_the_input_budget() {
    const BYTES: usize = 1_000_000;
    let options = Options { input_bytes: 8 << 20, ..Options::default() };
    let (server, store) = faulty_server(options);
    let running = &store.waiting_stores;
    let set = [&b"set stores 0 0 1000000\r\n"[..], &[b'v'; BYTES], b"\r\n"].concat();
    let mut clients: Vec<_> = (0..12).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        for client in &mut clients {
            let set = &set;
            scope.spawn(move || {
                client.write_all(set).unwrap();
                client.read_exact(&mut [0; 8]).unwrap();
            });
        }
        // As many run as there is memory for, and others get their turn.
        while running.load(Ordering::Acquire) < 3 {
            thread::yield_now();
        }
        for _ in 0..200 {
            assert_eq!(server.exchange(b"get k\r\n"), "END\r\n");
        }
        let most = running.load(Ordering::Acquire);
        store.is_released.store(true, Ordering::Release);
        assert_eq!(most, 3, "commands with {BYTES} bytes in 8 MiB");
    });
}

//! Commands that panic or wait, and connections that are always ready: how many fibers serve them, and what
//! the other connections notice.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::TestServer;
use crate::memcached::Shards;
use crate::memcached::local::LocalShards;
use crate::server::{Options, pool};
use crate::store::{Control, Request, Response, Seconds};

/// A store whose calls panic for one key, wait for another until the test releases them, and count the
/// fibers of their thread for a third.
struct FaultyStore {
    shards: LocalShards,
    /// Ends the wait.
    is_released: Arc<AtomicBool>,
    /// The most fibers that a thread had waiting for connections, when it was asked.
    idle_fibers: Arc<AtomicUsize>,
}

impl Shards for FaultyStore {
    fn call(&self, request: Request, now: Seconds) -> Response {
        match request.key() {
            b"panics" => panic!("a test's panic"),
            b"counts" => {
                self.idle_fibers.fetch_max(pool::idle_fibers(), Ordering::Relaxed);
            }
            b"waits" => {
                while !self.is_released.load(Ordering::Acquire) {
                    gossamer::sleep(Duration::from_millis(1));
                }
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

fn faulty_server() -> (TestServer, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (is_released, idle_fibers) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
    let (released, fibers) = (is_released.clone(), idle_fibers.clone());
    let store = move || {
        let shards = LocalShards::new(1, None);
        Arc::new(FaultyStore { shards, is_released: released, idle_fibers: fibers })
            as Arc<dyn Shards + Send + Sync>
    };
    (TestServer::with_shards(Options::default(), store), is_released, idle_fibers)
}

/// Each time that a fiber yields, all others still have connections to serve.
#[test]
fn connections_that_are_always_ready_are_served_by_few_fibers() {
    const CONNECTIONS: usize = 100;
    let (server, _, idle_fibers) = faulty_server();
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
    let fibers = idle_fibers.load(Ordering::Relaxed);
    assert!(fibers <= 2, "{fibers} fibers of a thread served {CONNECTIONS} connections");
}

/// The fiber that runs the command serves other connections, too.
#[test]
fn a_command_that_panics_or_waits_affects_only_its_connection() {
    let (server, is_released, _) = faulty_server();
    for _ in 0..4 {
        is_released.store(false, Ordering::Release);
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
        is_released.store(true, Ordering::Release);
        slow.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"END\r\n");
    }
}

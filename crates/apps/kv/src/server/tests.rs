//! The server on loopback, on a rack of two threads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gossamer::Rack;

use super::rack::RackShards;
use super::*;
use crate::memcached::Shards;

mod faults;

/// Turns a hang into a failure.
const TIMEOUT: Duration = Duration::from_secs(30);

struct TestServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// Returns how many connections were left when it ended.
    thread: Option<JoinHandle<usize>>,
}

impl TestServer {
    fn with(options: Options) -> Self {
        Self::with_shards(options, || Arc::new(RackShards::new(64 << 20)))
    }

    fn with_shards(
        options: Options,
        shards: impl FnOnce() -> Arc<dyn Shards + Send + Sync> + Send + 'static,
    ) -> Self {
        Self::on_threads(2, options, shards)
    }

    fn on_threads(
        threads: u32,
        options: Options,
        shards: impl FnOnce() -> Arc<dyn Shards + Send + Sync> + Send + 'static,
    ) -> Self {
        let (sender, started) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let main = move || {
            let address = Some("127.0.0.1:0".parse().unwrap());
            let (host, address) = Host::start(shards(), Options { address, ..options }).unwrap();
            sender.send(address.unwrap()).unwrap();
            while !stops.load(Ordering::Acquire) {
                gossamer::sleep(Duration::from_millis(5));
            }
            host.drain(Duration::from_secs(1)).left
        };
        let thread = Some(thread::spawn(move || Rack::new().threads(threads).run(main).unwrap()));
        Self { address: started.recv().unwrap(), stop, thread }
    }

    fn start() -> Self {
        Self::with(Options::default())
    }

    /// Drains the server; how many connections were left.
    fn drain(&mut self) -> usize {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Sends `input`, closes the client's side, and returns all responses.
    fn exchange(&self, input: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(input).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("the rack panicked");
        }
    }
}

#[test]
fn commands_get_responses_on_half_closed_connections_too() {
    let server = TestServer::start();
    let response = server.exchange(b"set k 5 0 3\r\nabc\r\nget k\r\nnonsense\r\nget k");
    assert_eq!(response, "STORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\nERROR\r\n");
    assert_eq!(server.exchange(b"quit\r\n"), "");
    assert_eq!(server.exchange(b""), "");
}

#[test]
fn an_item_may_take_more_than_an_even_share_of_the_memory() {
    let shards = || Arc::new(RackShards::new(3 << 19)) as Arc<dyn Shards + Send + Sync>;
    let server = TestServer::with_shards(Options::default(), shards);
    let value = "x".repeat(1_000_000);
    for key in ["a", "b", "c", "d"] {
        let set = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(server.exchange(set.as_bytes()), "STORED\r\n");
    }
    // The newest item of each thread may exceed the limit, until that of the other one is evicted.
    let deadline = Instant::now() + TIMEOUT;
    while counter(&server, "bytes") > counter(&server, "limit_maxbytes") {
        assert!(Instant::now() < deadline, "the limit is exceeded");
    }
    assert_eq!(counter(&server, "curr_items"), 1);
}

#[test]
fn a_key_ends_no_line_of_a_report() {
    let server = TestServer::start();
    let input = b"stats detail on\r\nget a\rb:c\r\nstats detail dump\r\n";
    let response = server.exchange(input);
    assert!(response.contains("PREFIX a%0Db get 1 hit 0 set 0 del 0\r\n"), "{response}");
}

#[test]
fn deeply_pipelined_commands_get_responses_in_order() {
    let server = TestServer::start();
    let depth = 20_000;
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        writer.write_all(b"set n 0 0 1\r\n0\r\n").unwrap();
        for _ in 0..depth {
            writer.write_all(b"incr n 1\r\n").unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    sender.join().unwrap();
    let mut lines = response.lines();
    assert_eq!(lines.next(), Some("STORED"));
    assert!(lines.eq((1..=depth).map(|number| number.to_string())));
}

#[test]
fn a_client_that_does_not_read_delays_no_other() {
    let server = TestServer::start();
    let value = "x".repeat(1_000_000);
    let set = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(server.exchange(set.as_bytes()), "STORED\r\n");
    // Requests half a gigabyte and does not read yet.
    let mut slow = server.connect();
    let keys = 512;
    slow.write_all(format!("get {}\r\nquit\r\n", "big ".repeat(keys)).as_bytes()).unwrap();
    for _ in 0..100 {
        assert_eq!(server.exchange(b"get none\r\n"), "END\r\n");
    }
    // It receives everything once it reads.
    let mut total = 0;
    let mut chunk = vec![0; 1 << 20];
    loop {
        match slow.read(&mut chunk).unwrap() {
            0 => break,
            length => total += length,
        }
    }
    assert_eq!(total, keys * ("VALUE big 0 1000000\r\n\r\n".len() + value.len()) + 5);
}

/// A client that requests more of the item `big` than socket buffers hold, and does not read.
fn reads_nothing(server: &TestServer, keys: usize) -> TcpStream {
    let mut client = server.connect();
    client.write_all(format!("get {}\r\n", "big ".repeat(keys)).as_bytes()).unwrap();
    client
}

#[test]
fn a_client_that_reads_is_served_when_others_exhaust_the_budget() {
    let options =
        Options { output_bytes: 4 << 20, stall: Duration::from_millis(100), ..Options::default() };
    let server = TestServer::with(options);
    let value = "x".repeat(1_000_000);
    let set = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(server.exchange(set.as_bytes()), "STORED\r\n");
    let silent: Vec<_> = (0..24).map(|_| reads_nothing(&server, 16)).collect();
    // Sending does not count as reading.
    let mut talking: Vec<_> = silent.iter().map(|client| client.try_clone().unwrap()).collect();
    let (talk, stop) = std::sync::mpsc::channel::<()>();
    let talker = thread::spawn(move || {
        while stop.recv_timeout(Duration::from_millis(20)).is_err() {
            talking.retain_mut(|client| client.write_all(b" ").is_ok());
        }
    });
    // Each has at least 256 KiB of unsent output, so together they exceed the budget.
    let deadline = Instant::now() + TIMEOUT;
    while server.exchange(b"stats\r\n").contains("STAT stalled_kicks 0\r\n") {
        assert!(Instant::now() < deadline, "no stalled client is closed");
    }
    let expected = format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len());
    for _ in 0..3 {
        assert!(server.exchange(b"get big\r\n") == expected, "the response is not the item");
    }
    talk.send(()).unwrap();
    talker.join().unwrap();
    // The remaining clients receive everything.
    let whole = 16 * (expected.len() - 5) + 5;
    let received = silent.into_iter().map(|mut client| {
        let mut total = 0;
        let mut chunk = vec![0; 1 << 20];
        while total < whole {
            match client.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(length) => total += length,
            }
        }
        total
    });
    let kept = received.filter(|&total| total == whole).count();
    assert!(kept < 24, "a client whose connection was closed received everything");
}

#[test]
fn idle_connections_are_closed() {
    let options = Options { idle: Some(Duration::from_secs(1)), ..Options::default() };
    let server = TestServer::with(options);
    let mut idle = server.connect();
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "the server closes it");
    // An incomplete command does not keep a connection open, even if more of it comes now and then.
    let mut half = server.connect();
    half.write_all(b"set k 0 0 1000\r\n").unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while half.write_all(b"x").is_ok() {
        assert!(Instant::now() < deadline, "the connection stays open");
        thread::sleep(Duration::from_millis(20));
    }
    let stats = server.exchange(b"stats\r\n");
    assert!(stats.contains("STAT idle_kicks 2\r\n"), "{stats}");
}

#[test]
fn many_connections_at_once() {
    let server = TestServer::start();
    let clients: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    for (index, mut client) in clients.iter().enumerate() {
        client.write_all(format!("set k{index} 0 0 1\r\nx\r\n").as_bytes()).unwrap();
    }
    for client in &clients {
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        assert_eq!(line, "STORED\r\n");
    }
    let stats = server.exchange(b"stats\r\n");
    assert!(stats.contains("STAT curr_connections 101\r\n"), "{stats}");
    assert!(stats.contains("STAT curr_items 100\r\n"), "{stats}");
    assert!(stats.ends_with("END\r\n"));
}

#[test]
fn connections_beyond_the_limit_are_told_so_and_closed() {
    let options = Options { connections_max: 1, ..Options::default() };
    let server = TestServer::with(options);
    let mut first = server.connect();
    first.write_all(b"mn\r\n").unwrap();
    first.read_exact(&mut [0; 4]).unwrap();
    let mut text = String::new();
    server.connect().read_to_string(&mut text).unwrap();
    assert_eq!(text, "ERROR Too many open connections\r\n");
    first.write_all(b"stats\r\nquit\r\n").unwrap();
    let mut stats = String::new();
    first.read_to_string(&mut stats).unwrap();
    assert!(stats.contains("STAT rejected_connections 1\r\n"), "{stats}");
    assert!(stats.contains("STAT total_connections 1\r\n"), "{stats}");
}

/// The value of a counter.
fn counter(server: &TestServer, name: &str) -> u64 {
    let stats = server.exchange(b"stats\r\n");
    let value = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {stats}"))
}

#[test]
fn unfinished_commands_share_a_budget() {
    let options =
        Options { input_bytes: 4 << 20, stall: Duration::from_millis(100), ..Options::default() };
    let server = TestServer::with(options);
    // More than fit, and none goes on.
    let silent: Vec<_> = (0..12)
        .map(|number| {
            let mut client = server.connect();
            let head = format!("set k{number} 0 0 1000000\r\n");
            client.write_all(&[head.as_bytes(), &[b'x'; 100_000]].concat()).unwrap();
            client
        })
        .collect();
    // As long as a line may be.
    let get = format!("get {}k\r\n", " ".repeat(1_000_000));
    assert_eq!(server.exchange(get.as_bytes()), "END\r\n");
    let set = format!("set big 0 0 1000000\r\n{}\r\n", "x".repeat(1_000_000));
    assert_eq!(server.exchange(set.as_bytes()), "STORED\r\n");
    let kicks = counter(&server, "stalled_kicks");
    assert!((1..=12).contains(&kicks), "{kicks} connections were closed");
    drop(silent);
}

#[test]
fn a_connection_whose_client_is_gone_does_not_wait_for_memory() {
    let options =
        Options { output_bytes: 4 << 20, stall: Duration::from_secs(3600), ..Options::default() };
    let server = TestServer::with(options);
    let value = "x".repeat(1_000_000);
    let set = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(server.exchange(set.as_bytes()), "STORED\r\n");
    // They hold the memory, some of them, and the others wait before those that come next.
    let silent: Vec<_> = (0..8).map(|_| reads_nothing(&server, 16)).collect();
    let until = |count: usize| {
        let deadline = Instant::now() + TIMEOUT;
        while counter(&server, "curr_connections") != count as u64 + 1 {
            assert!(Instant::now() < deadline, "not {count} connections");
        }
    };
    until(silent.len());
    let gone: Vec<_> = (0..4).map(|_| reads_nothing(&server, 1)).collect();
    until(silent.len() + gone.len());
    for client in gone {
        // Reset on drop.
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    }
    until(silent.len());
}

#[test]
fn a_crawl_does_not_keep_its_client_waiting() {
    let mut server = TestServer::start();
    let sets: String =
        (0..20_000).map(|number| format!("set k{number} 0 0 1 noreply\r\nx\r\n")).collect();
    assert_eq!(server.exchange(sets.as_bytes()), "");
    let crawl = b"lru_crawler sleep 1000000\r\nlru_crawler crawl all\r\n";
    assert_eq!(server.exchange(crawl), "OK\r\nOK\r\n");
    let busy = "BUSY currently processing crawler request\r\n";
    assert_eq!(server.exchange(b"lru_crawler crawl 1\r\n"), busy);
    assert_eq!(counter(&server, "lru_crawler_running"), 1);
    assert_eq!(server.exchange(b"lru_crawler disable\r\n"), "OK\r\n");
    let refused = "CLIENT_ERROR lru crawler disabled\r\n";
    assert_eq!(server.exchange(b"lru_crawler crawl 1\r\n"), refused);
    let deadline = Instant::now() + TIMEOUT;
    while counter(&server, "lru_crawler_running") == 1 {
        assert!(Instant::now() < deadline, "the crawl goes on");
    }
    let again = b"lru_crawler enable\r\nlru_crawler crawl all\r\n";
    assert_eq!(server.exchange(again), "OK\r\nOK\r\n");
    assert_eq!(server.drain(), 0, "connections that had not ended");
}

#[test]
fn traffic_is_counted() {
    let server = TestServer::start();
    let (input, output) = ("get none\r\n", "END\r\n");
    assert_eq!(server.exchange(input.as_bytes()), output);
    let stats = "stats\r\n".len() as u64;
    // Until the connections were removed.
    let deadline = Instant::now() + TIMEOUT;
    while counter(&server, "bytes_written") < output.len() as u64 {
        assert!(Instant::now() < deadline);
    }
    let read = counter(&server, "bytes_read") - input.len() as u64;
    assert!(read > 0 && read.is_multiple_of(stats), "{read}");
    let report = server.exchange(b"stats reset\r\nstats\r\n");
    assert!(report.starts_with("RESET\r\n"), "{report}");
    for name in ["total_connections", "bytes_read", "bytes_written"] {
        assert!(report.contains(&format!("STAT {name} 0\r\n")), "{report}");
    }
    assert_eq!(counter(&server, "total_connections"), 1);
}

#[test]
fn a_server_that_drains_answers_what_it_has_received() {
    let mut server = TestServer::start();
    let mut idle = server.connect();
    let mut busy = server.connect();
    busy.write_all(b"set k 0 0 1\r\n1\r\nget k\r\nget").unwrap();
    // Until the server has accepted both.
    while !server.exchange(b"stats\r\n").contains("STAT curr_connections 3\r\n") {}
    assert_eq!(server.drain(), 0, "connections that had not ended");
    let mut response = String::new();
    busy.read_to_string(&mut response).unwrap();
    assert_eq!(response, "STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n");
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    assert!(TcpStream::connect(server.address).is_err(), "it still listens");
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let path = std::env::temp_dir().join(format!("kv-{}.sock", std::process::id()));
    let name = path.to_str().unwrap().to_owned();
    // One that a killed server has left.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut server = TestServer::with(Options { unix: Some(name.clone()), ..Options::default() });
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"set k 0 0 1\r\n1\r\nstats conns\r\nquit\r\n").unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("STORED\r\n"), "{response}");
    assert!(response.contains(&format!("listen_addr unix:{name}\r\n")), "{response}");
    assert_eq!(server.exchange(b"get k\r\n"), "VALUE k 0 1\r\n1\r\nEND\r\n");
    assert_eq!(server.drain(), 0);
    assert!(!path.exists());
}

//! Load for servers of memcached's text protocol: many connections, each with a number of commands
//! under way, nine GETs to one SET of 100-byte values. One thread serves all connections with epoll,
//! and checks every answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::product::get::{Key, RECORDS, is_value, key, value};
use crate::work::next;

/// Bytes of a value.
const BYTES: usize = 100;
/// One command in so many is a SET.
const SETS: u64 = 10;
/// How long the clients ask before they are measured.
const WARM_UP: Duration = Duration::from_millis(50);
/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Events that one wait takes, at most.
const EVENTS: usize = 256;
/// Open files of the benchmark besides idle connections.
const OTHER_FILES: u64 = 1024;
/// What a SET is answered with.
const STORED: &[u8] = b"STORED\r\n";

/// How many clients, and how many commands each has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Connections.
    pub connections: usize,
    /// Commands that a connection sends before it waits for the answers to all of them.
    pub depth: usize,
    /// Further connections, which send nothing.
    pub idle: usize,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Commands per second.
    pub per_second: f64,
    /// Time in which 99 of 100 windows of `depth` commands were answered.
    pub p99: Duration,
    /// Resident memory of the server, in bytes, while all connections were open.
    pub resident: u64,
}

/// Loads the server at `address`, the process of this number, for `time`.
///
/// # Errors
/// Of sockets; if an answer is not right, or the server does not accept all connections.
pub fn load(
    (process, address): (u32, SocketAddr),
    plan: Plan,
    time: Duration,
) -> io::Result<Measured> {
    fill(address)?;
    let _idle = open_idle(address, plan.idle)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for number in 0..plan.connections {
        let client = Client::connect(address, plan.depth, number as u64 + 1)?;
        epoll::add(&epoll, &client.socket, EventData::new_u64(number as u64), EventFlags::IN)?;
        clients.push(client);
    }
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    let mut run = |clients: &mut [Client], time: Duration| -> io::Result<(u64, Vec<Duration>)> {
        let (start, mut done, mut latencies) = (Instant::now(), 0, Vec::new());
        for client in clients.iter_mut().filter(|client| client.expected == 0) {
            client.ask()?;
        }
        while start.elapsed() < time {
            let limit = TIMEOUT.try_into().map_err(io::Error::other)?;
            epoll::wait(&epoll, spare_capacity(&mut events), Some(&limit))?;
            if events.is_empty() {
                return Err(ErrorKind::TimedOut.into());
            }
            for event in events.drain(..) {
                let client = &mut clients[event.data.u64() as usize];
                if let Some(latency) = client.receive()? {
                    latencies.push(latency);
                    done += plan.depth as u64;
                    client.ask()?;
                }
            }
        }
        Ok((done, latencies))
    };
    run(&mut clients, WARM_UP)?;
    let start = Instant::now();
    let (done, mut latencies) = run(&mut clients, time)?;
    let took = start.elapsed();
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied();
    let p99 = p99.ok_or_else(|| io::Error::other("no answer in the time of a sample"))?;
    let resident = resident_bytes(process)?;
    Ok(Measured { per_second: done as f64 / took.as_secs_f64(), p99, resident })
}

/// Opens `count` connections that send nothing, and waits until the server has accepted them.
fn open_idle(address: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    allow_open_files(count as u64 + OTHER_FILES)?;
    let idle = (0..count).map(|_| TcpStream::connect(address)).collect::<io::Result<Vec<_>>>()?;
    let start = Instant::now();
    let mut accepted = 0;
    while count > 0 && accepted <= count as u64 {
        if start.elapsed() > TIMEOUT {
            let text = format!("the server has accepted {accepted} connections of {count}");
            return Err(io::Error::other(text));
        }
        accepted = counter(address, "curr_connections")?;
    }
    Ok(idle)
}

/// Raises the limit of open files of this process to `count`, unless it is higher.
fn allow_open_files(count: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let maximum = limit.maximum.map(|maximum| maximum.max(count));
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })?;
    }
    Ok(())
}

/// A counter of `stats`.
fn counter(address: SocketAddr, name: &str) -> io::Result<u64> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.write_all(b"stats\r\nquit\r\n")?;
    let mut report = String::new();
    socket.read_to_string(&mut report)?;
    number_after(&report, &format!("STAT {name} "))
}

/// Resident memory of a process.
fn resident_bytes(process: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(number_after(&status, "VmRSS:")? * 1024)
}

/// The number on the line of `text` that starts with `start`.
fn number_after(text: &str, start: &str) -> io::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no number after {start:?}")))
}

/// Stores all values.
fn fill(address: SocketAddr) -> io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    for number in 0..RECORDS as u32 {
        let mut text = Vec::new();
        push_set(key(number), &mut text);
        socket.write_all(&text)?;
        let mut answer = [0; STORED.len()];
        socket.read_exact(&mut answer)?;
        if answer != STORED {
            return Err(wrong(&answer));
        }
    }
    Ok(())
}

fn push_set(key: Key, text: &mut Vec<u8>) {
    text.extend(b"set ");
    text.extend(key);
    text.extend(b" 0 0 100\r\n");
    text.extend(value::<BYTES>(key));
    text.extend(b"\r\n");
}

fn wrong(answer: &[u8]) -> io::Error {
    io::Error::other(format!("unexpected answer {:?}", String::from_utf8_lossy(answer)))
}

/// One connection.
struct Client {
    socket: TcpStream,
    depth: usize,
    chance: u64,
    /// The keys of the window, `None` for a SET.
    asked: Vec<Option<Key>>,
    requests: Vec<u8>,
    received: Vec<u8>,
    len: usize,
    /// Bytes of the answers to the window; 0 if there is none.
    expected: usize,
    since: Instant,
}

impl Client {
    fn connect(address: SocketAddr, depth: usize, seed: u64) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            depth,
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            asked: Vec::new(),
            requests: Vec::new(),
            received: vec![0; depth * answer_len()],
            len: 0,
            expected: 0,
            since: Instant::now(),
        })
    }

    /// Sends a window.
    fn ask(&mut self) -> io::Result<()> {
        self.requests.clear();
        self.asked.clear();
        (self.len, self.expected) = (0, 0);
        for _ in 0..self.depth {
            self.chance = next(self.chance);
            let key = key((self.chance >> 33) as u32 % RECORDS as u32);
            if (self.chance >> 20).is_multiple_of(SETS) {
                push_set(key, &mut self.requests);
                self.asked.push(None);
                self.expected += STORED.len();
            } else {
                self.requests.extend(b"get ");
                self.requests.extend(key);
                self.requests.extend(b"\r\n");
                self.asked.push(Some(key));
                self.expected += answer_len();
            }
        }
        self.since = Instant::now();
        // The socket has room: the server has answered the last window.
        self.socket.write_all(&self.requests)
    }

    /// Receives; how long the window took, if it is complete.
    fn receive(&mut self) -> io::Result<Option<Duration>> {
        match self.socket.read(&mut self.received[self.len..self.expected]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.len += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if self.len < self.expected {
            return Ok(None);
        }
        let took = self.since.elapsed();
        let mut rest = &self.received[..self.len];
        for asked in &self.asked {
            let answer = rest.split_off(..asked.map_or(STORED.len(), |_| answer_len()));
            let answer = answer.ok_or_else(|| wrong(rest))?;
            let is_right = match asked {
                Some(key) => is_answer(*key, answer),
                None => answer == STORED,
            };
            if !is_right {
                return Err(wrong(answer));
            }
        }
        self.expected = 0;
        Ok(Some(took))
    }
}

/// Bytes of the answer to a GET.
const fn answer_len() -> usize {
    b"VALUE ".len() + size_of::<Key>() + b" 0 100\r\n".len() + BYTES + b"\r\nEND\r\n".len()
}

fn is_answer(key: Key, answer: &[u8]) -> bool {
    let rest = answer.strip_prefix(b"VALUE ").and_then(|rest| rest.strip_prefix(&key));
    let rest = rest.and_then(|rest| rest.strip_prefix(b" 0 100\r\n"));
    let value = rest.and_then(|rest| rest.strip_suffix(b"\r\nEND\r\n"));
    value.is_some_and(|value| value.len() == BYTES && is_value(key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_reports() {
        let report = "VmPeak:\t9 kB\nVmRSS:\t   1234 kB\nSTAT curr_connections 17\r\n";
        assert_eq!(number_after(report, "VmRSS:").expect("a number"), 1234);
        assert_eq!(number_after(report, "STAT curr_connections ").expect("a number"), 17);
        assert!(number_after(report, "STAT none ").is_err());
        assert!(resident_bytes(std::process::id()).expect("its memory") > 1 << 20);
    }

    #[test]
    fn only_the_value_of_its_key_is_an_answer() {
        let right =
            [b"VALUE ", &key(7)[..], b" 0 100\r\n", &value::<BYTES>(key(7)), b"\r\nEND\r\n"]
                .concat();
        assert_eq!(right.len(), answer_len());
        assert!(is_answer(key(7), &right));
        assert!(!is_answer(key(8), &right));
        let mut other = right;
        other[60] ^= 1;
        assert!(!is_answer(key(7), &other));
    }
}

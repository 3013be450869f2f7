//! Servers of memcached's text protocol: our own `kv serve`, and memcached itself where it is
//! installed. Both run on the second core; the client, on the first, has one connection, over which
//! a number of GETs is under way, and polls it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::cores::{on_core, spawn_on};
use crate::measure::processes::{Ended, free_port, listens};
use crate::measure::sampling::{CaseError, Sampler, undisturbed};
use crate::measure::watch::{WaitMode, Watch};
use crate::product::get::{Key, RECORDS, is_value, key};
use crate::work::next;

/// How long a client asks before it is measured.
const WARM_UP: Duration = Duration::from_millis(10);
/// How long a server may take to listen or to answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Values that are stored before the client waits for the answers.
const STORED: usize = 100;
/// Connections that a server has room for.
const CONNECTIONS_MAX: usize = 12_000;
/// What ends a response, after the value.
const END: &[u8] = b"\r\nEND\r\n";

/// A server.
#[derive(Clone, Debug)]
pub enum Server {
    /// `kv serve`, as one process, if there is a program.
    Kv(Option<PathBuf>),
    /// memcached itself.
    Memcached,
}

impl Server {
    /// Its name in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Server::Kv(_) => "kv serve",
            Server::Memcached => "memcached",
        }
    }

    /// Starts it with this many threads, on `core` or wherever the kernel puts it; its process, which
    /// ends when it is dropped, and where it listens.
    ///
    /// # Errors
    /// [`CaseError::Absent`] without its program; [`CaseError::Failed`] if it does not listen.
    pub fn start(
        &self,
        threads: usize,
        core: Option<usize>,
    ) -> Result<(Ended, SocketAddr), CaseError> {
        let (threads, connections) = (threads.to_string(), CONNECTIONS_MAX.to_string());
        match self {
            Server::Kv(None) => {
                Err(CaseError::Absent("kv (--kv, or GOSSAMER_KV, names it)".to_owned()))
            }
            Server::Kv(Some(program)) => {
                let mut command = Command::new(program);
                command.args(["serve", "--port", "0", "--hosts", "1", "--threads", &threads]);
                start_kv(core, command.args(["--connections", &connections]))
            }
            Server::Memcached => {
                let mut command = Command::new("memcached");
                start_memcached(core, command.args(["-t", &threads, "-c", &connections]))
            }
        }
    }
}

fn spawn(core: Option<usize>, command: &mut Command) -> Result<Ended, CaseError> {
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let started = match core {
        Some(core) => spawn_on(core, command),
        None => command.spawn(),
    };
    match started {
        Ok(child) => Ok(Ended(child)),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err(CaseError::Absent(command.get_program().to_string_lossy().into_owned()))
        }
        Err(e) => Err(e.into()),
    }
}

/// It prints its address once it listens.
fn start_kv(core: Option<usize>, command: &mut Command) -> Result<(Ended, SocketAddr), CaseError> {
    let mut process = spawn(core, command.stdout(Stdio::piped()))?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    let output = process.0.stdout.as_mut();
    let output = output.ok_or_else(|| CaseError::Failed("kv serve has no output".to_owned()))?;
    while output.read(&mut byte)? == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let address = line.rsplit(' ').next().and_then(|address| address.parse().ok());
    let address = address.ok_or_else(|| CaseError::Failed(format!("kv serve printed `{line}`")))?;
    Ok((process, address))
}

fn start_memcached(
    core: Option<usize>,
    command: &mut Command,
) -> Result<(Ended, SocketAddr), CaseError> {
    let port = free_port()?;
    // No UDP; root is asked for by name, and the option is ignored where another user runs it.
    command.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p", &port.to_string()]);
    let mut process = spawn(core, command.stdout(Stdio::null()))?;
    let start = Instant::now();
    while !listens(port)? {
        if let Some(status) = process.0.try_wait()? {
            return Err(CaseError::Failed(format!("memcached: {status}")));
        }
        if start.elapsed() > TIMEOUT {
            return Err(CaseError::Failed(format!("memcached did not listen within {TIMEOUT:?}")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok((process, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// GETs per second of values of so many bytes, with so many under way. `is_strict` if a sample is
/// thrown away in which the client lost its core.
///
/// # Errors
/// Those of a case; [`CaseError::Failed`] if the server answers what it should not.
pub fn gets_per_second(
    sampler: &Sampler,
    server: &Server,
    (bytes, under_way): (usize, usize),
    is_strict: bool,
) -> Result<f64, CaseError> {
    let (_process, address) = server.start(1, Some(sampler.cores.second))?;
    let (rate, lost) = on_core(sampler.cores.first, || -> io::Result<(f64, f64)> {
        let mut client = Client::connect(address, bytes, under_way)?;
        client.fill()?;
        client.get_for(WARM_UP)?;
        let watch = Watch::start(WaitMode::Polls);
        let done = client.get_for(sampler.time)?;
        let share = watch.stop();
        Ok((done as f64 / share.wall.as_secs_f64(), share.lost))
    })?
    .map_err(|e| CaseError::Failed(format!("{}: {e}", server.name())))?;
    if is_strict {
        undisturbed(lost)?;
    }
    Ok(rate)
}

/// A connection.
struct Client {
    socket: TcpStream,
    bytes: usize,
    under_way: usize,
    /// What stands between key and value of a response.
    head: Vec<u8>,
    /// The keys that were asked for and not answered yet.
    asked: VecDeque<Key>,
    requests: Vec<u8>,
    /// What was received and not looked at yet is `received[..len]`.
    received: Vec<u8>,
    len: usize,
    chance: u64,
}

impl Client {
    fn connect(address: SocketAddr, bytes: usize, under_way: usize) -> io::Result<Client> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let head = format!(" 0 {bytes}\r\n").into_bytes();
        let mut client = Client {
            socket,
            bytes,
            under_way,
            head,
            asked: VecDeque::with_capacity(under_way),
            requests: Vec::new(),
            received: Vec::new(),
            len: 0,
            chance: 1,
        };
        client.received = vec![0; (under_way + 1) * client.response_len()];
        Ok(client)
    }

    /// Bytes of a response: `VALUE KEY 0 BYTES`, the value, and `END`.
    fn response_len(&self) -> usize {
        b"VALUE ".len() + size_of::<Key>() + self.head.len() + self.bytes + END.len()
    }

    /// Stores all values, and from then on never blocks.
    fn fill(&mut self) -> io::Result<()> {
        let numbers: Vec<u32> = (0..RECORDS as u32).collect();
        for numbers in numbers.chunks(STORED) {
            let mut text = Vec::new();
            for key in numbers.iter().map(|&number| key(number)) {
                text.extend(b"set ");
                text.extend(key);
                text.extend(format!(" 0 0 {}\r\n", self.bytes).as_bytes());
                text.extend(key.iter().cycle().take(self.bytes));
                text.extend(b"\r\n");
            }
            self.socket.write_all(&text)?;
            let expected = b"STORED\r\n".repeat(numbers.len());
            let mut answer = vec![0; expected.len()];
            self.socket.read_exact(&mut answer)?;
            if answer != expected {
                return Err(unexpected(&answer));
            }
        }
        self.socket.set_nonblocking(true)
    }

    /// GETs values for this long; how many.
    fn get_for(&mut self, time: Duration) -> io::Result<u64> {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < time {
            self.ask()?;
            done += self.answers()?;
        }
        Ok(done)
    }

    /// Asks for as many values as may be under way.
    fn ask(&mut self) -> io::Result<()> {
        self.requests.clear();
        while self.asked.len() < self.under_way {
            self.chance = next(self.chance);
            let key = key((self.chance >> 33) as u32 % RECORDS as u32);
            self.requests.extend(b"get ");
            self.requests.extend(key);
            self.requests.extend(b"\r\n");
            self.asked.push_back(key);
        }
        // The socket has room for them, since the server has answered as many.
        self.socket.write_all(&self.requests)
    }

    /// Waits for answers and checks them; how many.
    fn answers(&mut self) -> io::Result<u64> {
        let (start, mut looks) = (Instant::now(), 0u32);
        while self.len < self.response_len() {
            match self.socket.read(&mut self.received[self.len..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.len += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 12) && start.elapsed() > TIMEOUT {
                return Err(unexpected(&self.received[..self.len]));
            }
        }
        let (mut done, len) = (0, self.response_len());
        let (received, _) = self.received[..self.len].split_at(self.len - self.len % len);
        for response in received.chunks_exact(len) {
            let is_right = self.asked.pop_front().is_some_and(|key| self.is_answer(key, response));
            if !is_right {
                return Err(unexpected(response));
            }
            done += 1;
        }
        self.received.copy_within(self.len - self.len % len..self.len, 0);
        self.len %= len;
        Ok(done)
    }

    fn is_answer(&self, key: Key, response: &[u8]) -> bool {
        let value = response.strip_prefix(b"VALUE ").and_then(|rest| rest.strip_prefix(&key));
        let value = value.and_then(|rest| rest.strip_prefix(&*self.head));
        let value = value.and_then(|rest| rest.strip_suffix(END));
        value.is_some_and(|value| value.len() == self.bytes && is_value(key, value))
    }
}

fn unexpected(answer: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned();
    io::Error::other(format!("unexpected answer {text:?}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::product::get::value;

    fn client(under_way: usize) -> (Client, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let address = listener.local_addr().expect("its address");
        let client = Client::connect(address, 100, under_way).expect("a client");
        client.socket.set_nonblocking(true).expect("a socket that does not block");
        (client, listener.accept().expect("a connection").0)
    }

    fn response(key: Key) -> Vec<u8> {
        [b"VALUE ", &key[..], b" 0 100\r\n", &value::<100>(key), END].concat()
    }

    #[test]
    fn answers_may_come_in_pieces() {
        let (mut client, mut server) = client(2);
        client.ask().expect("requests");
        let mut requests = [0; 28];
        server.read_exact(&mut requests).expect("requests");
        let keys: Vec<Key> = client.asked.iter().copied().collect();
        assert_eq!(&requests[..4], b"get ");
        assert_eq!(requests[18..26], keys[1]);
        let answers = [response(keys[0]), response(keys[1])].concat();
        let (first, second) = answers.split_at(response(keys[0]).len() + 5);
        server.write_all(first).expect("an answer");
        assert_eq!(client.answers().expect("an answer"), 1);
        server.write_all(second).expect("an answer");
        assert_eq!(client.answers().expect("an answer"), 1);
        assert!(client.asked.is_empty());
    }

    #[test]
    fn a_wrong_value_is_an_error() {
        let (mut client, mut server) = client(1);
        client.ask().expect("a request");
        let mut answer = response(client.asked[0]);
        answer[60] ^= 1;
        server.write_all(&answer).expect("an answer");
        let error = client.answers().expect_err("a wrong value");
        assert!(error.to_string().contains("unexpected answer"), "{error}");
    }

    #[test]
    fn without_a_program_nothing_is_measured() {
        let absent = Server::Kv(None).start(1, None).expect_err("no program");
        assert!(matches!(absent, CaseError::Absent(_)), "{absent:?}");
    }
}

//! Executes commands against the store and formats the responses.
//!
//! A [`Batch`] holds the commands that one connection has pipelined. It runs where blocking on the
//! store is allowed (in a fiber) and stops when its output is large enough; the remaining commands
//! run after the client has read the output. It also stops when the [`Budget`] of all connections
//! cannot cover the next response. So memory use is bounded for any number of clients and of keys
//! in a `get`.
//!
//! Memory is reserved before a request to a shard. Items are read in two steps: a first request
//! returns data of up to [`SMALL_BYTES`], or the size of a larger item, which is then reserved.

use std::collections::VecDeque;

use crate::memcached::command::Command;
use crate::memcached::output::{Budget, Output, Shortage};
use crate::store::number::Decimal;
use crate::store::{Control, Request, Response, Seconds, Stats};

/// Bytes of output after which a batch stops until they are sent.
pub const OUTPUT_BYTES: usize = 256 * 1024;

/// Keys of one retrieval that are requested at the same time.
pub const KEYS_AT_ONCE: usize = 16;

/// Maximum size of data that a read returns without reserving memory for it first.
pub const SMALL_BYTES: usize = 16 * 1024;

/// Memory reserved for a response without its data: a `VALUE` line with its key, or a `stats`
/// report.
const OVERHEAD_BYTES: usize = 4096;

/// All shards of the store. Calls may block the calling fiber or thread; the caller passes the
/// time.
pub trait Shards {
    /// Executes a request on the shard of its key.
    fn call(&self, request: Request, now: Seconds) -> Response;

    /// Executes independent requests; responses are in the order of the requests.
    fn call_all(&self, requests: Vec<Request>, now: Seconds) -> Vec<Response> {
        requests.into_iter().map(|request| self.call(request, now)).collect()
    }

    /// Executes a control request on every shard.
    fn control(&self, control: Control, now: Seconds) -> Vec<Response>;
}

/// What the `stats` command reports about the server, besides the counters of the store.
pub trait ServerStats {
    /// Names and values, in report order.
    fn server_stats(&self, now: Seconds) -> Vec<(&'static str, String)>;
}

/// Commands of one connection, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    commands: VecDeque<Command>,
    /// Number of keys of the first command, a retrieval, that already have a response.
    keys_done: usize,
}

/// The result of running a batch.
#[derive(Debug, Default)]
pub struct Progress {
    /// Output for the client.
    pub output: Output,
    /// Commands to run after that output was sent; empty if the batch is complete.
    pub remaining: Batch,
    /// Set if the batch stopped because the budget cannot cover its next response.
    pub shortage: Option<Shortage>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a command.
    pub fn push(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Runs the commands in order until all are complete, the output is large enough, or `budget`
    /// cannot cover the next response.
    pub fn run(
        mut self,
        shards: &dyn Shards,
        server_stats: &dyn ServerStats,
        now: Seconds,
        budget: &Budget,
    ) -> Progress {
        let mut output = Output::new(budget);
        let mut shortage = None;
        while output.len() < OUTPUT_BYTES
            && shortage.is_none()
            && let Some(command) = self.commands.pop_front()
        {
            shortage = output.reserve(OVERHEAD_BYTES).err();
            if shortage.is_some() {
                self.commands.push_front(command);
                break;
            }
            match command {
                Command::Retrieve { keys, touch, cas } => {
                    let mut retrieval = Retrieval { touch, cas, shards, now, output: &mut output };
                    shortage = retrieval.run(&keys, &mut self.keys_done).err();
                    if self.keys_done < keys.len() {
                        self.commands.push_front(Command::Retrieve { keys, touch, cas });
                    } else {
                        self.keys_done = 0;
                        output.push(b"END\r\n");
                    }
                }
                Command::Single { request, noreply } => {
                    let response = shards.call(request, now);
                    if !noreply {
                        write_response(&response, &mut output);
                    }
                }
                Command::FlushAll { exptime, noreply } => {
                    shards.control(Control::FlushAll { exptime }, now);
                    if !noreply {
                        output.push(b"OK\r\n");
                    }
                }
                Command::Stats => write_stats(shards, server_stats, now, &mut output),
                Command::ResetStats => {
                    shards.control(Control::ResetStats, now);
                    output.push(b"RESET\r\n");
                }
                Command::Respond(text) => output.push(text.as_bytes()),
                Command::Close => {}
            }
            output.settle();
        }
        Progress { output, remaining: self, shortage }
    }
}

/// A running `get`, `gets`, `gat` or `gats`.
struct Retrieval<'a> {
    touch: Option<i32>,
    cas: bool,
    shards: &'a dyn Shards,
    now: Seconds,
    output: &'a mut Output,
}

impl Retrieval<'_> {
    fn request(&self, key: &[u8], max_bytes: usize) -> Request {
        let (key, max_bytes) = (key.to_vec(), u32::try_from(max_bytes).unwrap_or(u32::MAX));
        match self.touch {
            None => Request::Get { key, max_bytes },
            Some(exptime) => Request::GetAndTouch { key, exptime, max_bytes },
        }
    }

    /// Reads the keys from `done` on, a few at a time, until the output is large enough. Advances
    /// `done`, also if it fails.
    fn run(&mut self, keys: &[Vec<u8>], done: &mut usize) -> Result<(), Shortage> {
        while *done < keys.len() && self.output.len() < OUTPUT_BYTES {
            let mut window = &keys[*done..keys.len().min(*done + KEYS_AT_ONCE)];
            if self.output.reserve(window.len() * (OVERHEAD_BYTES + SMALL_BYTES)).is_err() {
                // Fall back to one key at a time.
                window = &window[..1];
                self.output.reserve(OVERHEAD_BYTES + SMALL_BYTES)?;
            }
            let responses = match window {
                [key] => vec![self.shards.call(self.request(key, SMALL_BYTES), self.now)],
                _ => {
                    let requests = window.iter().map(|key| self.request(key, SMALL_BYTES));
                    self.shards.call_all(requests.collect(), self.now)
                }
            };
            for (key, response) in window.iter().zip(responses) {
                // If this fails, the other keys of the window are requested again later.
                let response = self.full_value(key, response)?;
                write_value(key, &response, self.cas, self.output);
                *done += 1;
                if self.output.len() >= OUTPUT_BYTES {
                    break;
                }
            }
            self.output.settle();
        }
        Ok(())
    }

    /// The full response for `key`, with memory reserved for it, given the response to the first
    /// request.
    fn full_value(&mut self, key: &[u8], mut response: Response) -> Result<Response, Shortage> {
        // Loops more than once only if the item grows in the meantime.
        while let Response::Large { bytes } = response {
            let bytes = bytes as usize;
            self.output.reserve(OVERHEAD_BYTES + bytes)?;
            response = self.shards.call(self.request(key, bytes), self.now);
        }
        Ok(response)
    }
}

fn write_value(key: &[u8], response: &Response, with_cas: bool, output: &mut Output) {
    let Response::Value { flags, cas, data } = response else { return };
    let mut line = Vec::with_capacity(key.len() + 64);
    let mut put = |bytes: &[u8]| line.extend_from_slice(bytes);
    put(b"VALUE ");
    put(key);
    put(b" ");
    put(Decimal::new(u64::from(*flags)).as_bytes());
    put(b" ");
    put(Decimal::new(data.len() as u64).as_bytes());
    if with_cas {
        put(b" ");
        put(Decimal::new(*cas).as_bytes());
    }
    put(b"\r\n");
    output.push(&line);
    output.push_data(data);
    output.push(b"\r\n");
}

fn write_response(response: &Response, output: &mut Output) {
    let text = match response {
        Response::Stored => "STORED\r\n",
        Response::NotStored => "NOT_STORED\r\n",
        Response::Exists => "EXISTS\r\n",
        Response::NotFound | Response::Miss => "NOT_FOUND\r\n",
        Response::Deleted => "DELETED\r\n",
        Response::Touched => "TOUCHED\r\n",
        Response::NotNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Response::TooLarge => crate::memcached::command::TOO_LARGE,
        Response::OutOfMemory => "SERVER_ERROR out of memory storing object\r\n",
        Response::Number(number) => {
            output.push(Decimal::new(*number).as_bytes());
            "\r\n"
        }
        Response::Done | Response::Value { .. } | Response::Large { .. } | Response::Stats(_) => {
            "OK\r\n"
        }
    };
    output.push(text.as_bytes());
}

fn write_stats(
    shards: &dyn Shards,
    server_stats: &dyn ServerStats,
    now: Seconds,
    output: &mut Output,
) {
    let mut total = Stats::default();
    for response in shards.control(Control::Stats, now) {
        if let Response::Stats(stats) = response {
            total.add(&stats);
        }
    }
    let mut put = |name: &str, value: &str| {
        for part in ["STAT ", name, " ", value, "\r\n"] {
            output.push(part.as_bytes());
        }
    };
    for (name, value) in server_stats.server_stats(now) {
        put(name, &value);
    }
    for (name, value) in total.each() {
        put(name, &value.to_string());
    }
    output.push(b"END\r\n");
}

//! Running commands against the store, and writing the answers.
//!
//! A [`Batch`] holds the commands that one connection sent without waiting. It runs wherever
//! blocking on the store is fine (a fiber), and stops when its output has grown enough: what is
//! left of it goes on when the client has taken the output. So the memory that one connection can
//! make the server use is bounded, however many keys one `get` names.

use std::collections::VecDeque;

use super::super::store::number::Decimal;
use super::super::store::{Control, Request, Response, Seconds, Stats};
use super::command::Command;

/// Bytes of output after which a batch stops, to go on when they are sent.
pub const OUTPUT_BYTES: usize = 256 * 1024;

/// Keys of one retrieval that are asked for at the same time. Times the largest item, this is what
/// the output may exceed [`OUTPUT_BYTES`] by.
pub const KEYS_AT_ONCE: usize = 16;

/// The store as a whole, wherever its shards are. Calls may block the fiber or thread they are made
/// on; the clock is the caller's.
pub trait Shards {
    /// Runs a request at the shard of its key.
    fn call(&self, request: Request, now: Seconds) -> Response;

    /// Runs requests that do not depend on each other; answers are in the order of the requests.
    fn call_all(&self, requests: Vec<Request>, now: Seconds) -> Vec<Response> {
        requests.into_iter().map(|request| self.call(request, now)).collect()
    }

    /// Runs a control request at every shard.
    fn control(&self, control: Control, now: Seconds) -> Vec<Response>;
}

/// What the `stats` command reports besides the counters of the store.
pub trait Facts {
    /// Names and values, in the order they are reported.
    fn facts(&self, now: Seconds) -> Vec<(&'static str, String)>;
}

/// Commands of one connection, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    commands: VecDeque<Command>,
    /// Keys of the first command, a retrieval, that are answered already.
    keys_done: usize,
}

/// How far a batch has come.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// To be sent to the client.
    pub output: Vec<u8>,
    /// What is left to run after that; empty when the batch is done.
    pub rest: Batch,
}

impl Batch {
    /// Without commands.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command behind the others.
    pub fn push(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    /// Commands in it.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Runs the commands in order until they are done or the output is large enough.
    pub fn run(mut self, shards: &dyn Shards, facts: &dyn Facts, now: Seconds) -> Progress {
        let mut output = Vec::new();
        while output.len() < OUTPUT_BYTES
            && let Some(command) = self.commands.pop_front()
        {
            match command {
                Command::Retrieve { keys, touch, cas } => {
                    self.keys_done =
                        retrieve(&keys, self.keys_done, touch, cas, shards, now, &mut output);
                    if self.keys_done < keys.len() {
                        self.commands.push_front(Command::Retrieve { keys, touch, cas });
                    } else {
                        self.keys_done = 0;
                        output.extend_from_slice(b"END\r\n");
                    }
                }
                Command::Single { request, quiet } => {
                    let response = shards.call(request, now);
                    if !quiet {
                        write_answer(&response, &mut output);
                    }
                }
                Command::FlushAll { exptime, quiet } => {
                    shards.control(Control::FlushAll { exptime }, now);
                    if !quiet {
                        output.extend_from_slice(b"OK\r\n");
                    }
                }
                Command::Stats => write_stats(shards, facts, now, &mut output),
                Command::ResetStats => {
                    shards.control(Control::ResetStats, now);
                    output.extend_from_slice(b"RESET\r\n");
                }
                Command::Say(text) => output.extend_from_slice(text.as_bytes()),
                Command::Close => {}
            }
        }
        Progress { output, rest: self }
    }
}

/// Answers the keys from `done` on, a few at a time; returns how many are done in the end.
fn retrieve(
    keys: &[Vec<u8>],
    mut done: usize,
    touch: Option<i32>,
    cas: bool,
    shards: &dyn Shards,
    now: Seconds,
    output: &mut Vec<u8>,
) -> usize {
    let request = |key: &Vec<u8>| match touch {
        None => Request::Get { key: key.clone() },
        Some(exptime) => Request::GetAndTouch { key: key.clone(), exptime },
    };
    while done < keys.len() && output.len() < OUTPUT_BYTES {
        let end = keys.len().min(done + KEYS_AT_ONCE);
        let window = &keys[done..end];
        let responses = match window {
            [key] => vec![shards.call(request(key), now)],
            _ => shards.call_all(window.iter().map(request).collect(), now),
        };
        for (key, response) in window.iter().zip(&responses) {
            write_value(key, response, cas, output);
        }
        done = end;
    }
    done
}

fn write_value(key: &[u8], response: &Response, with_cas: bool, output: &mut Vec<u8>) {
    let Response::Value { flags, cas, data } = response else { return };
    let mut put = |bytes: &[u8]| output.extend_from_slice(bytes);
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
    put(data);
    put(b"\r\n");
}

fn write_answer(response: &Response, output: &mut Vec<u8>) {
    let text = match response {
        Response::Stored => "STORED\r\n",
        Response::NotStored => "NOT_STORED\r\n",
        Response::Exists => "EXISTS\r\n",
        Response::NotFound | Response::Miss => "NOT_FOUND\r\n",
        Response::Deleted => "DELETED\r\n",
        Response::Touched => "TOUCHED\r\n",
        Response::NotNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Response::TooLarge => super::command::TOO_LARGE,
        Response::OutOfMemory => "SERVER_ERROR out of memory storing object\r\n",
        Response::Number(number) => {
            output.extend_from_slice(Decimal::new(*number).as_bytes());
            "\r\n"
        }
        Response::Done | Response::Value { .. } | Response::Stats(_) => "OK\r\n",
    };
    output.extend_from_slice(text.as_bytes());
}

fn write_stats(shards: &dyn Shards, facts: &dyn Facts, now: Seconds, output: &mut Vec<u8>) {
    let mut total = Stats::default();
    for response in shards.control(Control::Stats, now) {
        if let Response::Stats(stats) = response {
            total.add(&stats);
        }
    }
    let mut put = |name: &str, value: &str| {
        for part in ["STAT ", name, " ", value, "\r\n"] {
            output.extend_from_slice(part.as_bytes());
        }
    };
    for (name, value) in facts.facts(now) {
        put(name, &value);
    }
    for (name, value) in total.each() {
        put(name, &value.to_string());
    }
    output.extend_from_slice(b"END\r\n");
}

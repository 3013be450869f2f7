//! Executes commands against the store and formats the responses.
//!
//! A [`Batch`] holds the commands that one connection has pipelined. It runs where blocking on the
//! store is allowed (in a fiber), in rounds: each sends the requests of many commands at once and
//! waits for all responses together. A batch stops when its output is large enough; the remaining
//! commands run after the client has read the output. It also stops when the budget of all
//! connections cannot cover the next response. So memory use is bounded for any number of clients
//! and of keys in a `get`.
//!
//! Requests of a round that concern one key go to one shard, which executes them in order. Only
//! large items need more: a first request returns data of up to [`SMALL_BYTES`], or the size of a
//! larger item, for which memory is then reserved. So that no later command changes the item in
//! between, a round ends before a write to a key that it reads.

use std::collections::VecDeque;
use std::iter;

use crate::memcached::command::Command;
use crate::memcached::control;
use crate::memcached::format::Format;
use crate::memcached::output::{Output, Shortage};
use crate::memcached::target::{ServerState, Shards};
use crate::store::{Key, Request, Response, Seconds};

/// Bytes of output after which a batch stops until they are sent.
pub const OUTPUT_BYTES: usize = 256 * 1024;

/// Commands of a round, at most; each key of a retrieval counts.
pub const ROUND_COMMANDS: usize = 64;

/// Commands of a round that may return data and change the item, at most: meta gets, and gets that
/// touch. If the round cannot be finished, their data is kept outside the budget until the client has
/// read what is before it: to run such a command again could give another answer.
const ROUND_KEPT_READS: usize = 8;

/// Maximum size of data that a read returns without reserving memory for it first.
pub const SMALL_BYTES: usize = 4096;

/// Memory reserved for a response without its data: a key of 250 bytes, in base64 if need be, some
/// numbers, and an opaque token.
const OVERHEAD_BYTES: usize = 512;

/// Memory reserved for a report or a part of one: more than any takes.
pub(super) const REPORT_BYTES: usize = 16 * 1024;

/// What a command still needs before its response can be written.
#[derive(Debug, PartialEq)]
enum Work {
    Request(Request),
    Response(Response),
}

/// A command of a round, whose request was sent.
struct Sent {
    format: Format,
    /// The response, if the command needed no request.
    response: Option<Response>,
    /// The request, if its response may be large and `format` does not tell it.
    request: Option<Box<Request>>,
}

/// Commands of one connection, in order.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// Commands that a round has begun and could not finish; before `commands`.
    begun: VecDeque<(Format, Work)>,
    commands: VecDeque<Command>,
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

    /// The number of commands, of which the first may have run in part.
    pub fn len(&self) -> usize {
        self.begun.len() + self.commands.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.commands.is_empty()
    }

    /// Runs the commands in order until all are complete, the output is large enough, or its budget
    /// cannot cover the next response. `output` is empty.
    pub fn run(
        mut self,
        shards: &dyn Shards,
        server: &dyn ServerState,
        now: Seconds,
        mut output: Output,
    ) -> Progress {
        let mut shortage = None;
        while output.len() < OUTPUT_BYTES && shortage.is_none() && !self.is_empty() {
            shortage = match self.commands.front() {
                Some(Command::Admin { .. }) if self.begun.is_empty() => {
                    let reserved = output.reserve(REPORT_BYTES);
                    if reserved.is_ok() {
                        self.run_admin((shards, server, now), &mut output);
                    }
                    reserved.err()
                }
                _ => self.run_round(shards, now, &mut output).err(),
            };
            output.settle();
        }
        Progress { output, remaining: self, shortage }
    }

    /// Runs the first command, one on the server, or a part of it.
    fn run_admin(&mut self, target: (&dyn Shards, &dyn ServerState, Seconds), output: &mut Output) {
        let Some(Command::Admin { admin, noreply }) = self.commands.pop_front() else { return };
        if let Some(admin) = control::run(admin, noreply, target, output) {
            self.commands.push_front(Command::Admin { admin, noreply });
        }
    }

    /// The next command of the batch, or a part of it.
    fn next(&mut self) -> Option<(Format, Work)> {
        if let Some(begun) = self.begun.pop_front() {
            return Some(begun);
        }
        let text = |text| Some((Format::Text(text), Work::Response(Response::Done)));
        if let Some(Command::Retrieve { keys, touch, cas }) = self.commands.front_mut()
            && let Some(key) = keys.next_key().map(Key::new)
        {
            let is_last = keys.is_empty();
            let format = Format::Value { key, touch: *touch, cas: *cas, is_last };
            if is_last {
                self.commands.pop_front();
            }
            let request = format.request(SMALL_BYTES as u32)?;
            return Some((format, Work::Request(request)));
        }
        if let Command::Admin { .. } = self.commands.front()? {
            return None;
        }
        match self.commands.pop_front()? {
            Command::Single { request, noreply } => {
                Some((Format::Single { noreply }, Work::Request(request)))
            }
            Command::Meta { mut request, show } => {
                if let Request::MetaGet { max_bytes: Some(max), .. } = &mut request {
                    *max = SMALL_BYTES as u32;
                }
                Some((Format::Meta(show), Work::Request(request)))
            }
            Command::Respond(response) => text(response),
            // Without keys.
            Command::Retrieve { .. } => text("END\r\n"),
            // Neither is here: the caller runs the one, the parser ends with the other.
            Command::Close | Command::Admin { .. } => text(""),
        }
    }

    /// Sends the requests of as many commands as possible, and writes their responses.
    fn run_round(
        &mut self,
        shards: &dyn Shards,
        now: Seconds,
        output: &mut Output,
    ) -> Result<(), Shortage> {
        let mut next = self.next();
        if self.is_empty()
            && let Some(only) = next
        {
            return self.run_alone(only, shards, now, output);
        }
        let mut round: Vec<Sent> = Vec::new();
        let mut requests = Vec::new();
        let (mut need, mut kept_reads) = (0, 0);
        while let Some((format, work)) = next {
            let more = needed_bytes(&work);
            let conflicts = match &work {
                Work::Request(request) => {
                    changes(request) && round.iter().any(|sent| sent.reads(request.key()))
                }
                Work::Response(_) => false,
            };
            if conflicts || output.reserve(need + more).is_err() {
                self.begun.push_front((format, work));
                if round.is_empty() {
                    return Err(Shortage { bytes: more });
                }
                break;
            }
            need += more;
            match work {
                Work::Response(response) => {
                    round.push(Sent { format, response: Some(response), request: None });
                }
                Work::Request(request) => {
                    let kept = is_kept(&request).then(|| Box::new(request.clone()));
                    kept_reads += usize::from(keeps_data(&request));
                    requests.push(request);
                    round.push(Sent { format, response: None, request: kept });
                }
            }
            let goes_on = round.len() < ROUND_COMMANDS && kept_reads < ROUND_KEPT_READS;
            next = if goes_on { self.next() } else { None };
        }
        let responses = match requests.len() {
            1 => requests.pop().map(|request| shards.call(request, now)).into_iter().collect(),
            0 => Vec::new(),
            _ => shards.call_all(requests, now),
        };
        let responses = responses.into_iter();
        self.write_round(round.into_iter(), responses, (shards, now), need, output)
    }

    /// Runs the last command of the batch, or the only one, as is usual, without the lists of a round.
    fn run_alone(
        &mut self,
        (format, work): (Format, Work),
        shards: &dyn Shards,
        now: Seconds,
        output: &mut Output,
    ) -> Result<(), Shortage> {
        let need = needed_bytes(&work);
        if output.reserve(need).is_err() {
            self.begun.push_front((format, work));
            return Err(Shortage { bytes: need });
        }
        let (response, request) = match work {
            Work::Response(response) => (response, None),
            Work::Request(request) => {
                let kept = is_kept(&request).then(|| Box::new(request.clone()));
                (shards.call(request, now), kept)
            }
        };
        let sent = Sent { format, response: Some(response), request };
        self.write_round(iter::once(sent), iter::empty(), (shards, now), need, output)
    }

    fn write_round(
        &mut self,
        mut round: impl Iterator<Item = Sent>,
        mut responses: impl Iterator<Item = Response>,
        (shards, now): (&dyn Shards, Seconds),
        need: usize,
        output: &mut Output,
    ) -> Result<(), Shortage> {
        while let Some(sent) = round.next() {
            let mut response = sent.response.or_else(|| responses.next()).unwrap_or(Response::Miss);
            // Loops more than once only if the item grows in the meantime.
            while let Response::Large { bytes } = response {
                let again = full_request(sent.request.as_deref(), bytes)
                    .or_else(|| sent.format.request(bytes));
                let Some(request) = again else { break };
                let is_enough = output.len() >= OUTPUT_BYTES;
                let reserved = match is_enough {
                    true => Ok(()),
                    false => output.reserve(need + bytes as usize),
                };
                if is_enough || reserved.is_err() {
                    self.keep_unfinished((sent.format, Work::Request(request)), round, responses);
                    return reserved;
                }
                response = shards.call(request, now);
            }
            sent.format.write(&response, output);
        }
        Ok(())
    }

    /// Keeps what a round could not finish: one command, and those behind it, which were executed.
    fn keep_unfinished(
        &mut self,
        first: (Format, Work),
        round: impl Iterator<Item = Sent>,
        mut responses: impl Iterator<Item = Response>,
    ) {
        let mut begun = VecDeque::from([first]);
        for Sent { format, response, request } in round {
            let response = response.or_else(|| responses.next()).unwrap_or(Response::Miss);
            let work = match (&format, response) {
                // Reads again rather than keep data for which memory is not reserved any more. No
                // command of the round behind this one has changed the item. A get that touches has,
                // itself: the item may have expired by now.
                (Format::Value { key, touch: None, .. }, Response::Value { .. }) => {
                    let (key, max_bytes) = (key.clone(), SMALL_BYTES as u32);
                    Work::Request(Request::GetAgain { key, max_bytes })
                }
                (_, response @ Response::Large { .. }) => {
                    let again = request
                        .map(|request| *request)
                        .or_else(|| format.request(SMALL_BYTES as u32));
                    again.map_or(Work::Response(response), Work::Request)
                }
                (_, response) => Work::Response(response),
            };
            begun.push_back((format, work));
        }
        begun.append(&mut self.begun);
        self.begun = begun;
    }
}

/// Memory to reserve for the response.
fn needed_bytes(work: &Work) -> usize {
    OVERHEAD_BYTES
        + match work {
            Work::Request(
                Request::Get { max_bytes, .. }
                | Request::GetAgain { max_bytes, .. }
                | Request::GetAndTouch { max_bytes, .. }
                | Request::MetaGet { max_bytes: Some(max_bytes), .. },
            ) => *max_bytes as usize,
            Work::Response(Response::Meta(item)) => item.data.as_ref().map_or(0, |data| data.len()),
            Work::Response(Response::Value { data, .. }) => data.len(),
            _ => 0,
        }
}

impl Sent {
    /// Whether the command reads the data of `key`, which may be large.
    fn reads(&self, key: &[u8]) -> bool {
        match (&self.format, &self.request) {
            (Format::Value { key: read, .. }, _) => **read == *key,
            (_, Some(request)) => request.key() == key,
            _ => false,
        }
    }
}

/// Whether the request is a meta get's, for data.
fn returns_data(request: &Request) -> bool {
    matches!(request, Request::MetaGet { max_bytes: Some(_), .. })
}

/// Whether the data of the response is kept if the round cannot be finished.
fn keeps_data(request: &Request) -> bool {
    returns_data(request) || matches!(request, Request::GetAndTouch { .. })
}

/// Whether the response may be large and the request's format does not tell the request: a retrieval's
/// tells one that counts.
fn is_kept(request: &Request) -> bool {
    returns_data(request) || matches!(request, Request::GetAgain { .. })
}

/// A request that was kept, for data of so many bytes.
fn full_request(request: Option<&Request>, bytes: u32) -> Option<Request> {
    let mut request = request?.clone();
    match &mut request {
        Request::MetaGet { max_bytes, .. } => *max_bytes = Some(bytes),
        Request::GetAgain { max_bytes, .. } => *max_bytes = bytes,
        _ => {}
    }
    Some(request)
}

/// Whether a request can change an item.
fn changes(request: &Request) -> bool {
    !matches!(request, Request::Get { .. } | Request::GetAgain { .. } | Request::MetaDebug { .. })
}

#[cfg(test)]
mod tests;

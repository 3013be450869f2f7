//! What batches run on: [`Shards`], the store, and [`ServerState`], the server around it.

use serde::{Deserialize, Serialize};

use crate::store::{Control, Request, Response, Seconds, Settings};

/// All shards of the store. Calls may block the calling fiber or thread; the caller passes the
/// time.
pub trait Shards {
    /// Executes a request on the shard of its key.
    fn call(&self, request: Request, now: Seconds) -> Response;

    /// Executes requests; responses are in the order of the requests. Those on one key take effect
    /// in this order.
    fn call_all(&self, requests: Vec<Request>, now: Seconds) -> Vec<Response> {
        requests.into_iter().map(|request| self.call(request, now)).collect()
    }

    /// Executes a control request on every shard.
    fn control(&self, control: Control, now: Seconds) -> Vec<Response>;

    /// Executes a control request on the shard with this number; `None` if there is no such shard.
    fn control_one(&self, shard: usize, control: Control, now: Seconds) -> Option<Response>;

    /// The numbers of this host's shards, which share a memory limit; empty without one.
    fn local_shards(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Waits, for so many microseconds.
    fn sleep_micros(&self, micros: u32);
}

/// What `stats conns` reports of a connection or a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Its number, which no other one of the rack has.
    pub number: u64,
    /// The address of the client, or the one that is listened on.
    pub address: String,
    /// Where the server listens; `None` for a listener.
    pub listener: Option<String>,
    /// What it does, as memcached names it.
    pub state: String,
    /// Seconds since its last command.
    pub idle: u64,
}

/// What a batch reads and changes of the server, besides the store.
pub trait ServerState {
    /// Names and values of `stats`, in report order.
    fn stats(&self, now: Seconds) -> Vec<(&'static str, String)>;

    /// Resets the counters behind [`stats`](Self::stats) that `stats reset` concerns.
    fn reset(&self) {}

    /// Names and values of `stats settings`.
    fn settings(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The first `count` connections whose numbers are not less than `from`, in the order of the
    /// numbers, and a number that is larger than those of all connections.
    fn connections(&self, from: u64, count: usize, now: Seconds) -> (Vec<ConnectionReport>, u64) {
        let _ = (from, count, now);
        (Vec::new(), 0)
    }

    /// Starts [`crawl`](crate::memcached::crawl) with these settings, and does not wait for its end.
    fn start_crawl(&self, settings: Settings);
}

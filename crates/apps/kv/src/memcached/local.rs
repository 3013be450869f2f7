//! A store without a rack: shards behind locks in this process, for tests of the layers above the
//! store and as the simplest implementation of [`Shards`].

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::memcached::target::Shards;
use crate::store::{Control, Limits, Request, Response, Seconds, Store};

/// Stores behind locks, in this process.
#[derive(Debug)]
pub struct LocalShards {
    shards: Vec<Mutex<Store>>,
}

impl LocalShards {
    /// `count` shards (at least one) that share `memory` bytes.
    pub fn new(count: usize, memory: Option<usize>) -> Self {
        let count = count.max(1);
        let limits = Limits { memory: memory.map(|bytes| bytes / count) };
        Self { shards: (0..count).map(|_| Mutex::new(Store::new(limits))).collect() }
    }
}

impl Shards for LocalShards {
    fn call(&self, request: Request, now: Seconds) -> Response {
        let hash = FixedState::default().hash_one(request.key());
        let shard = (hash % self.shards.len() as u64) as usize;
        self.shards[shard].lock().execute(request, now)
    }

    fn control(&self, control: Control, now: Seconds) -> Vec<Response> {
        self.shards.iter().map(|shard| shard.lock().control(control.clone(), now)).collect()
    }

    fn control_one(&self, shard: usize, control: Control, now: Seconds) -> Option<Response> {
        self.shards.get(shard).map(|shard| shard.lock().control(control, now))
    }

    fn sleep_micros(&self, micros: u32) {
        std::thread::sleep(std::time::Duration::from_micros(micros.into()));
    }
}

/// The server of tests that look at the store alone.
#[cfg(test)]
pub(super) struct NoServer;

#[cfg(test)]
impl super::ServerState for NoServer {
    fn stats(&self, _now: Seconds) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn start_crawl(&self, _settings: crate::store::Settings) {}
}

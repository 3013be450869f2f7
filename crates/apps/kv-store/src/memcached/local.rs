//! A store without a rack: shards behind locks in this process, for tests of the layers above the
//! store and as the simplest implementation of [`Shards`].

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::memcached::target::Shards;
use crate::store::{Control, MemoryLimit, Request, Response, Seconds, Store};

/// Stores behind locks, in this process.
#[derive(Debug)]
pub struct LocalShards {
    shards: Vec<Mutex<Store>>,
}

impl LocalShards {
    /// `count` shards (at least one) that share `memory` bytes.
    pub fn new(count: usize, memory: Option<usize>) -> Self {
        let count = count.max(1);
        let limit = memory.map(|bytes| Arc::new(MemoryLimit::new(bytes, count)));
        let make = || limit.as_ref().map_or_else(Store::default, Store::sharing);
        Self { shards: (0..count).map(|_| Mutex::new(make())).collect() }
    }

    /// The shard of a key.
    pub(super) fn index_of(&self, key: &[u8]) -> usize {
        (FixedState::default().hash_one(key) % self.shards.len() as u64) as usize
    }
}

impl Shards for LocalShards {
    fn call(&self, request: Request, now: Seconds) -> Response {
        self.shards[self.index_of(request.key())].lock().execute(request, now)
    }

    fn control(&self, control: Control, now: Seconds) -> Vec<Response> {
        self.shards.iter().map(|shard| shard.lock().control(control.clone(), now)).collect()
    }

    fn control_one(&self, shard: usize, control: Control, now: Seconds) -> Option<Response> {
        self.shards.get(shard).map(|shard| shard.lock().control(control, now))
    }

    fn local_shards(&self) -> Vec<usize> {
        (0..self.shards.len()).collect()
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

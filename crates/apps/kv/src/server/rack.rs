//! The store on a rack: requests are delegated calls.

use std::sync::{Arc, Weak};
use std::time::Duration;

use gossamer::Sharded;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::fibers::request_all;
use crate::memcached::Shards;
use crate::store::{Control, MemoryLimit, Request, Response, Seconds, Store};

/// One store per trustee of a rack.
#[derive(Clone, Serialize, Deserialize)]
pub struct RackShards {
    shards: Sharded<[u8], Store>,
}

impl RackShards {
    /// Entrusts a store to every trustee; together they use up to `memory` bytes. Those of a host share
    /// its part.
    ///
    /// # Panics
    /// Outside a fiber of a rack.
    pub fn new(memory: usize) -> Self {
        let hosts = gossamer::hosts().count().max(1);
        let stores = gossamer::trustees().count() / hosts;
        let number = fastrand::u64(..);
        let make = |(number, memory, stores)| Store::sharing(&local_limit(number, memory, stores));
        Self { shards: Sharded::new_with(make, (number, memory / hosts, stores)) }
    }
}

/// The memory limit with this number on this host, which it makes for the first of its stores.
fn local_limit(number: u64, memory: usize, stores: usize) -> Arc<MemoryLimit> {
    /// The limits of this process, by number.
    static LIMITS: Mutex<Vec<(u64, Weak<MemoryLimit>)>> = Mutex::new(Vec::new());
    let mut limits = LIMITS.lock();
    limits.retain(|(_, limit)| limit.strong_count() > 0);
    let known = limits.iter().find(|(other, _)| *other == number);
    known.and_then(|(_, limit)| limit.upgrade()).unwrap_or_else(|| {
        let limit = Arc::new(MemoryLimit::new(memory, stores));
        limits.push((number, Arc::downgrade(&limit)));
        limit
    })
}

fn execute_all(store: &mut Store, (requests, now): (Vec<Request>, Seconds)) -> Vec<Response> {
    store.execute_all(requests, now)
}

impl Shards for RackShards {
    fn call(&self, request: Request, now: Seconds) -> Response {
        // No prefetch hook: it yields to other fibers twice, which costs a lone command more than the cache
        // misses that it hides.
        let shard = self.shards.shard(request.key());
        shard.apply_with(|store, (request, now)| store.execute(request, now), (request, now))
    }

    /// One delegated call for each shard, with all of its requests.
    fn call_all(&self, requests: Vec<Request>, now: Seconds) -> Vec<Response> {
        let shards = self.shards.shards();
        if let [shard] = shards {
            return shard.apply_with(execute_all, (requests, now));
        }
        let places: Vec<usize> =
            requests.iter().map(|request| self.shards.index_of(request.key())).collect();
        let mut parts: Vec<Vec<Request>> = vec![Vec::new(); shards.len()];
        for (request, &shard) in requests.into_iter().zip(&places) {
            parts[shard].push(request);
        }
        let mut parts: Vec<_> =
            parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()).collect();
        // The part of this thread runs at once: last, so that the others are on their way.
        parts.sort_by_key(|&(shard, _)| shards[shard].is_local());
        let answers = request_all(parts.len(), |index, reply| {
            let (shard, part) = &mut parts[index];
            shards[*shard].try_apply_with_then(
                execute_all,
                (std::mem::take(part), now),
                move |answers| reply.take(answers),
            );
        });
        let mut by_shard: Vec<_> = shards.iter().map(|_| Vec::new().into_iter()).collect();
        for ((shard, _), answers) in parts.into_iter().zip(answers) {
            by_shard[shard] = answers.into_iter();
        }
        // A shard that answers too little must not shift the answers of others.
        let next = |shard: usize| by_shard[shard].next().unwrap_or(Response::Miss);
        places.into_iter().map(next).collect()
    }

    fn control(&self, control: Control, now: Seconds) -> Vec<Response> {
        let shards = self.shards.shards();
        request_all(shards.len(), |index, reply| {
            shards[index].try_apply_with_then(
                |store, (control, now)| store.control(control, now),
                (control.clone(), now),
                move |response| reply.take(response),
            );
        })
    }

    fn control_one(&self, shard: usize, control: Control, now: Seconds) -> Option<Response> {
        let shard = self.shards.shards().get(shard)?;
        let control_at = |store: &mut Store, (control, now)| store.control(control, now);
        Some(shard.apply_with(control_at, (control, now)))
    }

    fn local_shards(&self) -> Vec<usize> {
        let local = gossamer::local_host();
        let all = gossamer::trustees().enumerate();
        all.filter(|(_, at)| at.thread().host == local).map(|(index, _)| index).collect()
    }

    fn sleep_micros(&self, micros: u32) {
        gossamer::sleep(Duration::from_micros(micros.into()));
    }
}

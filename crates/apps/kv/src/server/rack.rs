//! The store on a rack: requests are delegated calls.

use std::time::Duration;

use gossamer::Sharded;
use serde::{Deserialize, Serialize};

use crate::fibers::request_all;
use crate::memcached::Shards;
use crate::store::{Control, Limits, Request, Response, Seconds, Store};

/// One store per trustee of a rack.
#[derive(Clone, Serialize, Deserialize)]
pub struct RackShards {
    shards: Sharded<[u8], Store>,
}

impl RackShards {
    /// Entrusts a store to every trustee; together they use up to `memory` bytes.
    ///
    /// # Panics
    /// Outside a fiber of a rack.
    pub fn new(memory: usize) -> Self {
        let each = memory / gossamer::trustees().count().max(1);
        let make = |each| Store::new(Limits { memory: Some(each) });
        Self { shards: Sharded::new_with(make, each) }
    }
}

impl Shards for RackShards {
    fn call(&self, request: Request, now: Seconds) -> Response {
        let shard = self.shards.shard(request.key());
        // The fibers of other connections look for their items meanwhile.
        let ahead = |store: &Store, (request, _): &(Request, Seconds), step| {
            store.prefetch(request.key(), step);
        };
        shard
            .with_prefetch(ahead)
            .apply_with(|store, (request, now)| store.execute(request, now), (request, now))
    }

    fn call_all(&self, requests: Vec<Request>, now: Seconds) -> Vec<Response> {
        let count = requests.len();
        let mut requests = requests.into_iter();
        request_all(count, |_, reply| {
            if let Some(request) = requests.next() {
                self.shards.shard(request.key()).try_apply_with_then(
                    |store, (request, now)| store.execute(request, now),
                    (request, now),
                    move |response| reply.take(response),
                );
            }
        })
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

    fn sleep_micros(&self, micros: u32) {
        gossamer::sleep(Duration::from_micros(micros.into()));
    }
}

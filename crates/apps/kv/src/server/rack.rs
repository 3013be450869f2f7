//! The server on a rack: requests are delegated calls, jobs run in fibers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fiber::Unparker;
use gossamer::Sharded;
use parking_lot::Mutex;

use crate::fibers::request_all;
use crate::memcached::Shards;
use crate::server::job::{Executor, Job};
use crate::store::{Control, Limits, Request, Response, Seconds, Store};

/// One store per trustee of a rack.
#[derive(Clone)]
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
        shard.apply_with(|store, (request, now)| store.execute(request, now), (request, now))
    }

    fn call_all(&self, requests: Vec<Request>, now: Seconds) -> Vec<Response> {
        let count = requests.len();
        let mut requests = requests.into_iter();
        request_all(count, |_, reply| {
            if let Some(request) = requests.next() {
                self.shards.shard(request.key()).try_apply_with_then(
                    |store, (request, now)| store.execute(request, now),
                    (request, now),
                    reply,
                );
            }
        })
    }

    fn control(&self, control: Control, now: Seconds) -> Vec<Response> {
        let shards = self.shards.shards();
        request_all(shards.len(), |index, reply| {
            shards[index].try_apply_with_then(
                |store, (control, now)| store.control(control, now),
                (control, now),
                reply,
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

/// Runs jobs in fibers of this host.
///
/// A fixed number of fibers takes jobs from a queue, which holds at most one job per connection.
#[derive(Clone)]
pub struct FiberExecutor {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Parked fibers by number, with their unparkers. A fiber is in this list only while it has no
    /// job, so no wake-up is lost on a busy one.
    idle: Vec<(u64, Unparker)>,
}

impl FiberExecutor {
    /// Starts `fibers` fibers, spread over the threads of this host, that run jobs on `shards`
    /// until the rack ends.
    ///
    /// # Panics
    /// Outside a fiber of a rack.
    pub fn start(shards: &RackShards, fibers: u64) -> Self {
        let executor = Self { queue: Arc::default() };
        for number in 0..fibers {
            let (executor, shards) = (executor.clone(), shards.clone());
            drop(gossamer::spawn(move || {
                loop {
                    executor.next(number).run(&shards);
                }
            }));
        }
        executor
    }

    /// Waits for a job.
    fn next(&self, number: u64) -> Job {
        loop {
            {
                let mut queue = self.queue.lock();
                queue.idle.retain(|(other, _)| *other != number);
                if let Some(job) = queue.jobs.pop_front() {
                    return job;
                }
                queue.idle.extend(fiber::unparker().map(|unparker| (number, unparker)));
            }
            fiber::park();
        }
    }
}

impl Executor for FiberExecutor {
    fn start(&self, job: Job) {
        let waiter = {
            let mut queue = self.queue.lock();
            queue.jobs.push_back(job);
            queue.idle.pop()
        };
        if let Some((_, unparker)) = waiter {
            unparker.unpark();
        }
    }
}

//! The server's store without a rack: shards behind locks, jobs on plain threads.
//!
//! It serves the tests of everything above the store, and shows what an [`Execute`] and a
//! [`Shards`] must do.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::memcached::Shards;
use crate::server::job::{Execute, Job};
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
        self.shards.iter().map(|shard| shard.lock().control(control, now)).collect()
    }
}

/// Runs jobs on threads of its own; they end when it is dropped.
#[derive(Debug)]
pub struct LocalExecutor {
    jobs: Sender<Job>,
}

impl LocalExecutor {
    /// An executor with so many threads.
    pub fn new(shards: Arc<LocalShards>, threads: usize) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let (queue, shards) = (Arc::clone(&queue), Arc::clone(&shards));
            thread::spawn(move || {
                loop {
                    let job = queue.lock().recv();
                    match job {
                        Ok(job) => job.run(&*shards),
                        Err(_) => return,
                    }
                }
            });
        }
        Self { jobs }
    }
}

impl Execute for LocalExecutor {
    fn start(&self, job: Job) {
        // A job that cannot be queued is dropped, which closes its connection.
        let _ = self.jobs.send(job);
    }
}

//! An executor without a rack: jobs on plain threads. It serves the tests of the server, and shows
//! what an [`Execute`] must do.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use parking_lot::Mutex;

use crate::memcached::local::LocalShards;
use crate::server::job::{Execute, Job};

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

//! An executor without a rack: jobs on plain threads, for tests of the server and as the simplest
//! implementation of [`Executor`].

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use parking_lot::Mutex;

use crate::memcached::local::LocalShards;
use crate::server::job::{Executor, Job};

/// Runs jobs on its own threads, which end when it is dropped.
#[derive(Debug)]
pub struct LocalExecutor {
    jobs: Sender<Job>,
}

impl LocalExecutor {
    /// An executor with `threads` threads.
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

impl Executor for LocalExecutor {
    fn start(&self, job: Job) {
        // A job that cannot be queued is dropped, which closes its connection.
        let _ = self.jobs.send(job);
    }
}

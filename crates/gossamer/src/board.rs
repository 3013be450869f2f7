//! [`Board`]: where the threads of a process publish what they have done, for the reporter.

use std::time::{Duration, Instant};

use gossamer_job::ThreadStatistics;
use parking_lot::Mutex;

/// What each thread of a process has done, as of the last time that it published.
#[derive(Debug)]
pub(crate) struct Board {
    began: Instant,
    threads: Mutex<Vec<ThreadStatistics>>,
}

impl Board {
    pub(crate) fn new(threads: u32) -> Self {
        let threads = vec![ThreadStatistics::default(); threads as usize];
        Self { began: Instant::now(), threads: Mutex::new(threads) }
    }

    /// Publishes what `thread` has done until now.
    pub(crate) fn publish(&self, thread: u32, done: ThreadStatistics) {
        let at_ns = nanoseconds(self.began.elapsed());
        self.threads.lock()[thread as usize] = ThreadStatistics { at_ns, ..done };
    }

    pub(crate) fn read(&self) -> Vec<ThreadStatistics> {
        self.threads.lock().clone()
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

//! [`Job`]: the commands that the I/O thread hands to an [`Executor`], and the way back.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use mio::Waker;

use crate::memcached::{Batch, Budget, Progress, Shards};
use crate::server::counters::{ServerCounters, unix_time};

/// Runs jobs where blocking on the store is allowed.
pub trait Executor {
    /// Starts a job and returns. Must not block, since the I/O thread calls it. Jobs may run
    /// concurrently and in any order.
    fn start(&self, job: Job);
}

/// Identifies a connection; ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) slot: usize,
    pub(super) serial: u64,
}

/// The result of a job.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) connection: ConnectionId,
    /// `None` if the job was dropped: the connection must be closed.
    pub(super) progress: Option<Progress>,
}

/// Returns results to the I/O thread.
#[derive(Clone, Debug)]
pub(super) struct CompletionSender {
    pub(super) sender: Sender<Completion>,
    pub(super) waker: Arc<Waker>,
    pub(super) counters: Arc<ServerCounters>,
    /// The budget for unsent responses.
    pub(super) budget: Budget,
}

impl CompletionSender {
    fn send(&self, completion: Completion) {
        // Fails if the I/O thread has ended, and its connections with it.
        if self.sender.send(completion).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

/// Commands of one connection to run. Dropping a job without running it closes its connection; so
/// does a panic while it runs.
#[derive(Debug)]
pub struct Job {
    connection: ConnectionId,
    /// Taken by [`Job::run`].
    batch: Option<Batch>,
    completions: CompletionSender,
    returned: bool,
}

impl Job {
    pub(super) fn new(
        connection: ConnectionId,
        batch: Batch,
        completions: CompletionSender,
    ) -> Self {
        Self { connection, batch: Some(batch), completions, returned: false }
    }

    /// Runs the commands and returns their output to the I/O thread. Blocks on the store.
    pub fn run(mut self, shards: &dyn Shards) {
        let Some(batch) = self.batch.take() else { return };
        let progress =
            batch.run(shards, &*self.completions.counters, unix_time(), &self.completions.budget);
        self.returned = true;
        self.completions.send(Completion { connection: self.connection, progress: Some(progress) });
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.returned {
            self.completions.send(Completion { connection: self.connection, progress: None });
        }
    }
}

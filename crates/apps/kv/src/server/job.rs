//! What leaves the I/O thread and what comes back.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use mio::Waker;

use crate::memcached::{Batch, Budget, Progress, Shards};
use crate::server::counters::{ServerCounters, unix_time};

/// Starts jobs where blocking on the store is fine.
pub trait Execute {
    /// Starts a job without waiting for it. Called on the I/O thread: it must not block there. Jobs
    /// may run in any order and at the same time.
    fn start(&self, job: Job);
}

/// Names one connection, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) slot: usize,
    pub(super) serial: u64,
}

/// The outcome of a job.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) connection: ConnectionId,
    /// `None` when the job was lost: the connection cannot go on.
    pub(super) progress: Option<Progress>,
}

/// The way back to the I/O thread.
#[derive(Clone, Debug)]
pub(super) struct CompletionSender {
    pub(super) done: Sender<Completion>,
    pub(super) waker: Arc<Waker>,
    pub(super) counters: Arc<ServerCounters>,
    /// What answers may take.
    pub(super) budget: Budget,
}

impl CompletionSender {
    fn send(&self, done: Completion) {
        // When the I/O thread is gone, so are the sockets, and nobody waits for the outcome.
        if self.done.send(done).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

/// Commands of one connection, to be run. A job that is dropped, or whose store panics, closes its
/// connection instead of leaving the client waiting.
#[derive(Debug)]
pub struct Job {
    connection: ConnectionId,
    /// Taken when the job runs.
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

    /// Runs the commands and hands their output to the I/O thread. Blocks on the store.
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

//! [`ServiceQueue`]: what threads of this process ask of the service thread.

use crate::control::import_broker::Answer;
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError, mpsc},
    time::Duration,
};
use transport_api::{HostId, LossReason, RegionKey};

/// What a thread of this process asks of the service thread.
pub(crate) enum Command {
    /// Ask `owner` for a region. The sender of the answer is dropped when `owner` is gone.
    Import { owner: HostId, key: RegionKey, timeout: Duration, answer: Answer },
    /// Drop `done` when neither a host of `importers` nor this host uses the region.
    Withdraw {
        key: RegionKey,
        generation: u32,
        importers: BTreeSet<HostId>,
        done: mpsc::Sender<()>,
    },
    /// A queue pair to `peer` has failed.
    Ended { peer: HostId, reason: LossReason },
    /// End.
    Stop,
}

/// The commands that the service thread has not taken.
pub(crate) struct ServiceQueue(Mutex<Option<Vec<Command>>>);

impl Default for ServiceQueue {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl ServiceQueue {
    /// Queues a command; drops it once the queue is closed.
    pub(crate) fn push(&self, command: Command) {
        // The list is consistent even if a thread has panicked.
        let mut commands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commands) = &mut *commands {
            commands.push(command);
        }
    }

    /// Takes all commands.
    pub(crate) fn take(&self) -> Vec<Command> {
        let mut commands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        commands.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Drops all commands, and those to come.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

//! [`Importer`]: who waits for an import.

use crate::{Event, RegionError, RemoteRegion};
use std::sync::mpsc;

/// For backends: who waits for an import. When the owner is gone it is dropped unanswered: then a
/// blocked thread sees that its channel is closed, and a lane reports the end of the owner.
#[derive(Debug)]
pub enum Importer {
    /// A thread that blocks in [`Transport::import`](crate::Transport::import).
    Blocked(mpsc::Sender<Result<RemoteRegion, RegionError>>),
    /// The lane of a thread to the owner, by
    /// [`Transport::begin_import`](crate::Transport::begin_import).
    Lane {
        /// The thread.
        thread: u32,
        /// The token that the event carries.
        token: u64,
    },
}

impl Importer {
    /// Gives it the answer; `deliver` leaves an event for the lane of a thread to the owner.
    pub fn answer(
        self,
        result: Result<RemoteRegion, RegionError>,
        deliver: impl FnOnce(u32, Event),
    ) {
        match self {
            // It may have timed out.
            Importer::Blocked(answer) => drop(answer.send(result)),
            Importer::Lane { thread, token } => deliver(thread, Event::Imported { token, result }),
        }
    }
}

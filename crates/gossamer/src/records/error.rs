//! [`RecordsError`]: why an operation on sharded records failed.

use gossamer_segment::SegmentError;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::{HostId, LossReason, ThreadId};
use trust_core::DelegateError;

/// Why an operation on [`ShardedRecords`](crate::ShardedRecords) failed. A delegated closure may return
/// it.
#[derive(Clone, Debug, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RecordsError {
    /// The shard that the key belongs to is full.
    #[error(
        "the shard of {thread} is full: it has {capacity} records; remove one, or create the map \
         with a larger capacity"
    )]
    Full {
        /// The shard's trustee.
        thread: ThreadId,
        /// Records that a shard can have.
        capacity: usize,
    },
    /// A trustee could not create its shard.
    #[error("{thread} cannot create its shard: {reason}")]
    Make {
        /// The trustee.
        thread: ThreadId,
        /// The error at the trustee, with its causes.
        reason: String,
    },
    /// The host of the shard is gone.
    #[error("{host} is gone")]
    PeerLost {
        /// The host.
        host: HostId,
        /// How it was lost.
        #[source]
        reason: LossReason,
    },
    /// The trustee could not be asked.
    #[error(transparent)]
    Delegate(DelegateError),
    /// The shard's segment could not be read.
    #[error(transparent)]
    Segment(SegmentError),
}

impl From<DelegateError> for RecordsError {
    fn from(error: DelegateError) -> Self {
        match error {
            DelegateError::PeerLost { host, reason } => Self::PeerLost { host, reason },
            error => Self::Delegate(error),
        }
    }
}

impl From<SegmentError> for RecordsError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::PeerLost(host, reason) => Self::PeerLost { host, reason },
            error => Self::Segment(error),
        }
    }
}

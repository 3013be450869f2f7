//! [`RecordsError`]: why an operation on sharded records failed.

use gossamer_segment::SegmentError;
use thiserror::Error;
use transport_api::{HostId, LossReason, ThreadId};
use trust_core::DelegateError;

/// Why an operation on [`ShardedRecords`](crate::ShardedRecords) failed.
#[derive(Clone, Debug, Error)]
pub enum RecordsError {
    /// The shard that the key belongs to has as many records as it was made for.
    #[error(
        "the shard of {thread} has {capacity} records, the most it was made for: remove one, or \
         make shards of more"
    )]
    Full {
        /// The shard's trustee.
        thread: ThreadId,
        /// Records that a shard can have.
        capacity: usize,
    },
    /// A trustee could not make its shard.
    #[error("{thread} cannot make its shard: {reason}")]
    Make {
        /// The trustee.
        thread: ThreadId,
        /// What it says.
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

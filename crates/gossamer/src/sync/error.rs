//! The errors of channels.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::HostId;
use trust_core::DelegateError;

/// Why a value was not sent.
#[derive(Clone, Error, Serialize, Deserialize)]
pub enum SendError<T> {
    /// The receiver was dropped, or its host was lost; here is the value.
    #[error("the receiver of the channel was dropped")]
    Closed(T),
    /// The thread that has the channel cannot be asked: its host was lost, or the rack has ended. The
    /// value may or may not have arrived there.
    #[error("cannot reach the channel")]
    Failed(#[source] DelegateError),
}

impl<T> SendError<T> {
    /// The value, if it is known not to have been sent.
    pub fn into_value(self) -> Option<T> {
        match self {
            SendError::Closed(value) => Some(value),
            SendError::Failed(_) => None,
        }
    }
}

/// Why a value was not sent by [`Sender::try_send`](crate::sync::Sender::try_send).
#[derive(Clone, Error, Serialize, Deserialize)]
pub enum TrySendError<T> {
    /// The channel is full; here is the value.
    #[error("the channel is full")]
    Full(T),
    /// The receiver was dropped, or its host was lost; here is the value.
    #[error("the receiver of the channel was dropped")]
    Closed(T),
    /// As [`SendError::Failed`].
    #[error("cannot reach the channel")]
    Failed(#[source] DelegateError),
}

/// Why no value was received.
#[derive(Clone, Debug, Error, Serialize, Deserialize)]
pub enum RecvError {
    /// All senders were dropped, and all values were received; or the receiver came from a host that was
    /// lost, with what it had not received.
    #[error("all senders of the channel were dropped")]
    Closed,
    /// A host was lost while the channel had senders, and values of its fibers may be missing. Each
    /// lost host is reported once, after the values that had arrived. Senders of that host no longer
    /// count as dropped or not: a receiver that goes on hears the others, but waits for ever if there
    /// are none.
    #[error("{0} was lost, perhaps with senders of the channel")]
    HostLost(HostId),
    /// The thread that has the channel cannot be asked: its host was lost, or the rack has ended.
    #[error("cannot reach the channel")]
    Failed(#[source] DelegateError),
}

/// Why [`Receiver::try_recv`](crate::sync::Receiver::try_recv) received no value.
#[derive(Clone, Debug, Error, Serialize, Deserialize)]
pub enum TryRecvError {
    /// There is no value now.
    #[error("the channel is empty")]
    Empty,
    /// There will be none, or one may be missing.
    #[error(transparent)]
    Failed(#[from] RecvError),
}

/// Why [`Receiver::recv_timeout`](crate::sync::Receiver::recv_timeout) received no value.
#[derive(Clone, Debug, Error, Serialize, Deserialize)]
pub enum RecvTimeoutError {
    /// None came within the timeout.
    #[error("no value came within the timeout")]
    Timeout,
    /// There will be none, or one may be missing.
    #[error(transparent)]
    Failed(#[from] RecvError),
}

/// Without the value, as std's.
impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Closed(_) => f.write_str("Closed(..)"),
            SendError::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

/// Without the value, as std's.
impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrySendError::Full(_) => f.write_str("Full(..)"),
            TrySendError::Closed(_) => f.write_str("Closed(..)"),
            TrySendError::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

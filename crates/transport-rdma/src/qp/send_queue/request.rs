//! What a request is made of: the bytes that it sends, its target, and where its result goes.

use std::sync::Arc;

use primitive::SharedBytes;
use rdma_protocol::immediate::Refusal;
use transport_api::{Event, OpError};

use crate::memory::remote::RemoteMemory;
use crate::verbs::Verb;

/// Where the result of a request goes.
#[derive(Debug)]
pub(crate) enum Destination {
    /// The old value of a word.
    Word { token: u64 },
    /// A part of a read, which goes to byte `at` of `into`; the last part has the end of the read: its
    /// bytes, or why no part follows that would have more.
    Part { token: u64, into: SharedBytes, at: usize, end: Option<Result<usize, OpError>> },
    /// A piece of a payload.
    Piece,
    /// None: a fence, and the refusal that it reports instead of its completion.
    Fence { token: u64, refused: Option<OpError> },
}

/// The result of a completed request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An event for the caller.
    Event(Event),
    /// A piece of a payload, at byte `at` of the staging memory; valid during the call.
    Piece { at: usize },
}

/// A deferred request that was not started.
#[derive(Debug)]
pub(crate) enum Refused {
    /// An operation on a revoked region, with the event for the caller.
    Operation(Event),
    /// A notification whose data was refused.
    Notification,
}

impl Outcome {
    /// The end of the operation with this token.
    pub(super) fn end(token: u64, result: Result<u64, OpError>) -> Outcome {
        Outcome::Event(match result {
            Ok(value) => Event::Completed { token, value },
            Err(error) => Event::Failed { token: Some(token), error },
        })
    }
}

impl Destination {
    /// The token to report a failure with, if one is to be reported.
    pub(super) fn token(&self) -> Option<u64> {
        match self {
            Destination::Word { token } | Destination::Part { token, end: Some(_), .. } => {
                Some(*token)
            }
            Destination::Part { .. } | Destination::Piece | Destination::Fence { .. } => None,
        }
    }

    /// Whether requests behind it that change memory must be fenced.
    pub(super) fn delays_writes(&self) -> bool {
        matches!(self, Destination::Part { .. })
    }
}

/// The target of a request: a region, and the byte in it.
pub(crate) type Target<'a> = (&'a Arc<RemoteMemory>, usize);

/// The bytes that a request sends.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Bytes(&'a [u8]),
    /// Of this memory, from byte `.1` on, `.2` bytes.
    Part(&'a SharedBytes, usize, usize),
}

impl Source<'_> {
    pub(super) fn len(self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Part(_, _, len) => len,
        }
    }

    pub(super) fn copy_to(self, memory: &SharedBytes, to: usize) {
        match self {
            Source::Bytes(bytes) => memory.write_from(to, bytes),
            Source::Part(from, at, len) => memory.copy_part(to, from, at..at + len),
        }
    }

    pub(super) fn to_vec(self) -> Vec<u8> {
        match self {
            Source::Bytes(bytes) => bytes.to_vec(),
            Source::Part(from, at, len) => {
                let mut bytes = vec![0; len];
                from.read_into(at, &mut bytes);
                bytes
            }
        }
    }
}

/// A request that waits for room in the queue or the staging memory.
pub(super) struct Deferred {
    pub(super) verb: Verb,
    pub(super) to: Option<(Arc<RemoteMemory>, usize)>,
    pub(super) bytes: Vec<u8>,
    /// Bytes of staging memory that it needs.
    pub(super) len: usize,
    pub(super) destination: Option<Destination>,
    /// Of the last request for the data of a notification, and of the notification: whether the former was
    /// refused.
    pub(super) refusal: Option<Refusal>,
}

/// A request that is staged or posted.
pub(super) struct InFlight {
    pub(super) id: u64,
    /// The mark up to which its completion frees the staging memory.
    pub(super) mark: u64,
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) destination: Option<Destination>,
}

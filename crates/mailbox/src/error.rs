//! [`MailboxError`]: why a mailbox, or an operation on one, failed.

use gossamer_segment::{HostId, Label, SegmentError};
use thiserror::Error;

use crate::frame::Malformed;
use crate::layout::InvalidGeometry;

/// Why a mailbox, or an operation on one, failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum MailboxError {
    /// The mailbox cannot have these dimensions.
    #[error(transparent)]
    Geometry(#[from] InvalidGeometry),
    /// The segment has no mailbox, or one of another build.
    #[error("{0} is not a mailbox of this build")]
    NotAMailbox(Label),
    /// Every bank set of the mailbox has a sender.
    #[error(
        "mailbox {mailbox} has {senders} senders already: drop one, or export it with more \
         `senders`"
    )]
    Full {
        /// The mailbox.
        mailbox: Label,
        /// How many senders it can have.
        senders: u32,
    },
    /// The frame is too large for the mailbox.
    #[error("{len} bytes do not fit into a frame of {mailbox}: at most {max}")]
    TooLarge {
        /// The mailbox.
        mailbox: Label,
        /// Bytes of arguments, payload and attachment, each rounded up to a multiple of eight.
        len: usize,
        /// Bytes that a frame has for them.
        max: usize,
    },
    /// The receiver has dropped the mailbox, or has given the bank set of this sender to another one
    /// because it took this host for lost.
    #[error("mailbox {0} was closed by its receiver; open it again")]
    Closed(Label),
    /// The receiver has not taken all frames in time.
    #[error("the receiver of {0} has not taken all frames in time")]
    NotTaken(Label),
    /// The bytes are not a frame that a sender of this build writes. The frame is skipped.
    #[error("malformed frame of a sender that claims to be on {host}")]
    Malformed {
        /// The host of the sender, as the sender claims.
        host: HostId,
        /// What is wrong.
        #[source]
        reason: Malformed,
    },
    /// An operation on the segment of the mailbox, or of its flags, failed:
    /// [`SegmentError::PeerLost`] if the other host is gone.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl MailboxError {
    /// Whether the other host is gone.
    pub fn is_peer_lost(&self) -> bool {
        matches!(self, MailboxError::Segment(SegmentError::PeerLost(..)))
    }

    /// The error of an operation on a mailbox that was opened.
    pub(crate) fn of_mailbox(error: SegmentError) -> Self {
        match error {
            SegmentError::Revoked { segment: label, .. } => MailboxError::Closed(label),
            error => error.into(),
        }
    }
}

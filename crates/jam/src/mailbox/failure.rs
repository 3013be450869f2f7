//! [`FrameFailure`]: why a frame did not run to its end, in full at the receiver, and as a
//! [`FailureKind`] at the sender. [`SendError`]: why a frame was not sent.

use ::mailbox::{MailboxError, Malformed};
use gossamer_segment::HostId;
use jam_format::Digest;
use thiserror::Error;

use crate::error::{JamError, Panicked, Refusal};

/// A frame that did not run to its end. The mailbox and its properties continue.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("frame {number} of {sender} failed")]
pub struct FrameFailure {
    /// The host of the sender, as the sender claims.
    pub sender: HostId,
    /// The number of the frame among those of its sender, from 0: since the mailbox first saw the sender,
    /// or, if the frame is malformed, since the sender opened the mailbox.
    pub number: u64,
    /// The jam that it names; zero if the frame is malformed.
    pub jam: Digest,
    /// Why.
    #[source]
    pub reason: FrameError,
}

/// Why a frame did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The jam panicked, or a function that it called did. The property is as the jam left it.
    #[error("its jam panicked")]
    Panicked(#[source] Panicked),
    /// The receiver refused the jam, or its arguments, before any of it ran.
    #[error("its jam was refused")]
    Refused(#[source] Refusal),
    /// The jam is not linked, the frame carries no code, and the sender has none to read: it was dropped,
    /// or its host is gone.
    #[error(
        "no code of its jam here, in the frame or at its sender: close senders instead of dropping them"
    )]
    NoCode,
    /// The header says that it is longer than a frame can be.
    #[error("it is malformed")]
    Malformed(#[source] Malformed),
    /// It is no frame of a jam.
    #[error("its kind is {0:#x}, which no sender of jams writes")]
    Kind(u32),
}

/// Why a frame did not run to its end, as its sender learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum FailureKind {
    /// [`FrameError::Panicked`].
    Panicked = 1,
    /// [`FrameError::NoCode`].
    NoCode,
    /// [`FrameError::Malformed`] and [`FrameError::Kind`].
    Malformed,
    /// [`Refusal::Malformed`] and [`Refusal::Digest`]: the code is not what the sender says.
    Code,
    /// [`Refusal::Policy`] and [`Refusal::NotNow`].
    Policy,
    /// [`Refusal::Machine`] and [`Refusal::Features`].
    Machine,
    /// [`Refusal::MissingSymbol`] and [`Refusal::WrongSignature`].
    Symbol,
    /// [`Refusal::WrongProperty`]: the mailbox has no such property.
    Property,
    /// [`Refusal::Entry`] and [`Refusal::WrongEntry`]: arguments or payload have other lengths than
    /// the jam takes.
    Lengths,
    /// [`Refusal::NoRoom`] and [`Refusal::NoMemory`].
    NoRoom,
    /// [`Refusal::NotLocal`] or [`Refusal::NoLocalInC`].
    NotLocal,
}

impl FailureKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [FailureKind; 11] = [
        FailureKind::Panicked,
        FailureKind::NoCode,
        FailureKind::Malformed,
        FailureKind::Code,
        FailureKind::Policy,
        FailureKind::Machine,
        FailureKind::Symbol,
        FailureKind::Property,
        FailureKind::Lengths,
        FailureKind::NoRoom,
        FailureKind::NotLocal,
    ];

    /// The one with this number, which a peer says.
    pub(super) fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == number)
    }

    /// Its position in [`ALL`](Self::ALL).
    pub(super) fn index(self) -> usize {
        self as usize - 1
    }
}

impl FrameError {
    /// What its sender learns.
    pub fn kind(&self) -> FailureKind {
        match self {
            FrameError::Panicked(_) => FailureKind::Panicked,
            FrameError::NoCode => FailureKind::NoCode,
            FrameError::Malformed(_) | FrameError::Kind(_) => FailureKind::Malformed,
            FrameError::Refused(refusal) => match refusal {
                Refusal::Malformed { .. } | Refusal::Digest { .. } => FailureKind::Code,
                Refusal::Policy { .. } | Refusal::NotNow { .. } => FailureKind::Policy,
                Refusal::Machine { .. } | Refusal::Features { .. } => FailureKind::Machine,
                Refusal::MissingSymbol { .. } | Refusal::WrongSignature { .. } => {
                    FailureKind::Symbol
                }
                Refusal::WrongProperty { .. } => FailureKind::Property,
                Refusal::Entry { .. } | Refusal::WrongEntry { .. } => FailureKind::Lengths,
                Refusal::NoRoom { .. } | Refusal::NoMemory { .. } => FailureKind::NoRoom,
                Refusal::NotLocal | Refusal::NoLocalInC => FailureKind::NotLocal,
            },
        }
    }
}

/// Why a frame was not sent, or is not known to be handled.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The sender has no code of the jam for this machine.
    #[error(transparent)]
    Jam(#[from] JamError),
    /// The call does not fit into a frame.
    #[error(
        "a call of jam {jam} needs {args} bytes for arguments, {payload} for its payload and {code} \
         for code, a frame has {max}: export the mailbox with larger frames"
    )]
    TooLarge {
        /// The jam's name.
        jam: String,
        /// Bytes of the arguments.
        args: usize,
        /// Bytes of the payload.
        payload: usize,
        /// Bytes of the code that the frame must carry; 0 if none.
        code: usize,
        /// Bytes that a frame has for all three, each rounded up to a multiple of eight.
        max: usize,
    },
    /// The sender has no room to keep the code for its receiver.
    #[error(
        "no room for the {bytes} bytes of jam {jam} among the code that this sender keeps: open it \
         with more `code_bytes`, or send the jam in mode `Injected`"
    )]
    NoRoom {
        /// The jam's name.
        jam: String,
        /// Bytes of its code.
        bytes: usize,
    },
    /// The receiver has not handled all frames in time.
    #[error("the receiver has handled {handled} of {sent} frames in time")]
    NotHandled {
        /// Frames that it has handled.
        handled: u64,
        /// Frames that were sent.
        sent: u64,
    },
    /// The frame could not be written.
    #[error(transparent)]
    Mailbox(#[from] MailboxError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_travels_by_its_number() {
        for (at, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), at);
            assert_eq!(FailureKind::of(kind as u64), Some(kind));
        }
        for number in [0, FailureKind::ALL.len() as u64 + 1, 256 + 1, u64::MAX] {
            assert_eq!(FailureKind::of(number), None);
        }
    }
}

//! [`Output`]: what a control plane wants its transport to do, or has to report.

use thiserror::Error;
use transport_api::{HostId, LossReason, PeerEvent, RegionError, RegionKey};

use crate::config::Medium;
use crate::message::{Descriptor, Message};

/// What [`Control::poll`](crate::Control::poll) returns.
pub enum Output<M: Medium> {
    /// Send `message` to `to`. If it has no room, keep it and call
    /// [`set_writable`](crate::Control::set_writable).
    Send {
        /// The receiver.
        to: HostId,
        /// The message.
        message: Message,
        /// The region that the message describes; over shared memory its file goes along.
        export: Option<M::Export>,
    },
    /// Close the connection to this peer once what was sent to it is on its way, without waiting for
    /// that. Nothing that still arrives from it counts.
    Close(HostId),
    /// A peer is no longer there. Reported once per peer; the lanes of every thread report it.
    PeerGone(PeerEvent),
    /// An import has ended: this host may use the region.
    Imported {
        /// What waits for it.
        requester: M::Requester,
        /// The host that exports it.
        owner: HostId,
        /// Its key.
        key: RegionKey,
        /// The region.
        region: Descriptor,
        /// What came beside the answer of a peer.
        attachment: Option<M::Attachment>,
        /// The transport's part of it, if this host exports it.
        export: Option<M::Export>,
    },
    /// An import has ended without a region.
    ImportFailed {
        /// What waits for it.
        requester: M::Requester,
        /// The host that was asked.
        owner: HostId,
        /// The key that was asked for.
        key: RegionKey,
        /// Why.
        error: ImportError,
    },
    /// No thread of this host may start anything more on this generation of `owner`'s region. Once
    /// that is certain and nothing is under way any more, tell
    /// [`quiesced`](crate::Control::quiesced).
    Inhibit {
        /// The host that exports it; may be this one.
        owner: HostId,
        /// Its key.
        key: RegionKey,
        /// The generation that was revoked.
        generation: u32,
        /// Counts the inhibitions of this host.
        epoch: u64,
    },
    /// A revocation of this host has ended. If no host is `busy`, no importer uses the region any
    /// more, and its memory is free.
    Revoked {
        /// What waits for it.
        requester: Option<M::Requester>,
        /// The key.
        key: RegionKey,
        /// The generation that was revoked.
        generation: u32,
        /// The transport's part of the region.
        export: M::Export,
        /// The importers that may still use the region: they have neither quiesced nor certainly
        /// stopped, and the revocation waits for them no longer.
        busy: Vec<HostId>,
    },
    /// All peers have seen that this host leaves, are gone, or took too long.
    Departed {
        /// What waits for it.
        requester: M::Requester,
    },
}

/// Why an import ended without a region.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// The owner exported no such region within the timeout.
    #[error("no such region was exported in time")]
    Unknown,
    /// The owner does not export the region to this host.
    #[error("the region is not exported to this host")]
    Denied,
    /// The owner did not answer in time.
    #[error("the owner did not answer in time")]
    TimedOut,
    /// The requester cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The owner is gone, or this host has left.
    #[error("the owner is gone")]
    PeerGone(#[source] LossReason),
    /// The owner is not among the peers of this control plane.
    #[error("the owner is not connected")]
    NoSuchHost,
}

impl ImportError {
    /// The same for users of the transport, about region `key` of `owner`.
    pub fn for_region(self, owner: HostId, key: RegionKey) -> RegionError {
        match self {
            Self::Unknown | Self::Cancelled => RegionError::Unknown { owner, key },
            Self::TimedOut => RegionError::NoAnswer { owner, key },
            Self::Denied => RegionError::Denied { owner, key },
            Self::PeerGone(reason) => RegionError::PeerLost(owner, reason),
            Self::NoSuchHost => RegionError::NoSuchHost(owner),
        }
    }
}

//! [`Config`]: what a control plane must know of its transport. [`Medium`], [`Export`]: what the
//! transport attaches to exports, messages and requests.

use std::sync::Arc;
use std::time::Duration;

use transport_api::{HostId, Rights};

use crate::message::Opaque;

/// Heartbeats in the time of a loss bound.
pub const HEARTBEATS_PER_BOUND: u32 = 8;

/// How long a peer may take to answer an import beyond the import's own timeout.
pub const ANSWER_GRACE: Duration = Duration::from_secs(2);

/// How long a host that leaves waits for peers that do not say that they have seen it.
pub const LEAVE_GRACE: Duration = Duration::from_secs(2);

/// How long a revocation waits for a peer that is lost to stop ([`CutOff::AtStop`]), as it does
/// when its process ends. No answer will come from it.
pub const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long a revocation waits for threads that map the region and poll no lane: of this process, and
/// of peers that live, perhaps stopped by a signal. Long, because threads may compute for a while
/// without polling.
pub const QUIET_TIMEOUT: Duration = Duration::from_secs(20);

/// How long after the end of a connection its cause may become known. Part of the 100 ms within which
/// the end of a process is reported.
pub const CLOSING_GRACE: Duration = Duration::from_millis(50);

/// The part of an exported region that belongs to the transport: its memory, a file, a registration.
pub trait Export {
    /// The description that `importer` gets of the region; `None` if it has no right to it at all.
    fn describe(&self, importer: HostId) -> Option<Description>;
}

impl<E: Export> Export for Arc<E> {
    fn describe(&self, importer: HostId) -> Option<Description> {
        E::describe(self, importer)
    }
}

/// What an owner tells one importer of a region, beside its key and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// What the importer may do to the region.
    pub rights: Rights,
    /// Bytes of the region.
    pub len: u64,
    /// What the transport of the importer needs beside that.
    pub opaque: Opaque,
}

/// The types that a transport attaches to what a [`Control`](crate::Control) handles.
pub trait Medium {
    /// The transport's part of a region that this host exports. Clones are the same region.
    type Export: Export + Clone;
    /// What comes beside a message: a file descriptor over shared memory, `()` elsewhere.
    type Attachment;
    /// What waits for an import, a revocation or a goodbye, and is handed back when that ends: a lane
    /// and its token, or the sender of a channel ([`Requester`](crate::Requester)).
    type Requester;
}

/// How importers reach the regions of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By themselves: the regions are mapped, or a device serves them. A revocation must wait until
    /// importers have quiesced.
    Direct,
    /// Through the owner, which checks each operation. A revocation waits for threads of the owner
    /// alone.
    ByOwner,
}

/// From when on a peer that has ended or left accesses no region of this host, where peers reach regions
/// by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    /// When its end is reported: the transport refuses whatever the peer does from then on.
    AtEnd,
    /// When the transport says so with [`Control::stopped`](crate::Control::stopped). A peer that has
    /// mapped a region may use it as long as its process runs, whatever its connection does.
    AtStop,
}

/// How a host says goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goodbye {
    /// By [`Message::Leave`](crate::Message::Leave), which is delivered even if the sender ends right
    /// after it.
    Message,
    /// On the data path, behind the last operation of each lane; the receiver's transport reports it
    /// with [`Control::left`](crate::Control::left). The receiver acknowledges it.
    DataPath,
    /// A transport below does it, and reports it with [`Control::left`](crate::Control::left).
    Carrier,
}

/// What a control plane must know of its transport.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This host.
    pub local: HostId,
    /// Hosts of the rack.
    pub hosts: u32,
    /// After how much silence a peer counts as lost; `None` if the transport notices by other means.
    pub loss_bound: Option<Duration>,
    /// How importers reach regions.
    pub reach: Reach,
    /// From when on a peer that is gone accesses no region.
    pub cut_off: CutOff,
    /// How a host says goodbye.
    pub goodbye: Goodbye,
    /// How long a revocation waits for importers; `None`: until they have quiesced or are lost.
    pub revocation_timeout: Option<Duration>,
}

//! [`SegmentError`]: why an operation on a segment, or on a name, failed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::{HostId, LaneError, LossReason, OpError, RegionError, Rights, portable};

use crate::name::{InvalidName, Name};
use crate::table::Malformed;

/// Which segment an error is about: its name, and the host that exports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The segment's name.
    pub name: Name,
    /// The host that exports it.
    pub host: HostId,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment \"{}\" of {}", self.name, self.host)
    }
}

/// A generation as errors name it behind a segment.
fn of_generation(generation: Option<u32>) -> String {
    generation.map(|number| format!(" (generation {number})")).unwrap_or_default()
}

/// Why an operation on a segment, or on a name, failed.
///
/// A delegated closure may return it: it travels with everything that its message and its causes say.
#[derive(Clone, Debug, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SegmentError {
    /// The text is not a name.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The calling thread is attached to no rack.
    #[error(
        "this thread is not attached to a rack: call it in a fiber, attach the thread, or start \
         `Segments::serve`; in a program of fibers, pass `gossamer::segments()` to this thread"
    )]
    NotAttached,
    /// The calling thread is attached already, to this rack or another one.
    #[error("this thread is attached to a rack already: attach another thread")]
    AlreadyAttached,
    /// [`Segments::serve`](crate::Segments::serve) was called before, or a runtime serves the
    /// segments.
    #[error("a thread already serves the segments of this process")]
    Served,
    /// The rack has ended, or the threads that carry out operations have.
    #[error("the rack has ended")]
    RackEnded,
    /// None of the hosts publishes the name.
    #[error(
        "\"{name}\" is not published by {}: check the name, or wait for it with a `timeout`",
        Hosts(hosts)
    )]
    NotFound {
        /// The name.
        name: Name,
        /// The host that was asked; all of them if empty.
        hosts: Vec<HostId>,
    },
    /// Several hosts publish the name.
    #[error("\"{name}\" is published by {}; name the host to open it at", Hosts(hosts))]
    Ambiguous {
        /// The name.
        name: Name,
        /// The hosts that publish it.
        hosts: Vec<HostId>,
    },
    /// The name is published, but names another kind of object.
    #[error("\"{name}\" of {host} is not a {expected}")]
    OtherKind {
        /// The name.
        name: Name,
        /// The host that publishes it.
        host: HostId,
        /// The kind that the caller expects.
        expected: Cow<'static, str>,
    },
    /// This host publishes the name already.
    #[error("this host already publishes \"{0}\"; drop that first or choose another name")]
    NameTaken(Name),
    /// The registry of this host has no room for another name.
    #[error("this host already publishes {0} names, which is the limit")]
    NamesFull(usize),
    /// The registry of a peer has an entry that no host of this build writes.
    #[error("malformed entry in the registry of {host}, found by the lookup of \"{name}\"")]
    Malformed {
        /// The name.
        name: Name,
        /// The host.
        host: HostId,
        /// What is wrong.
        #[source]
        reason: Malformed,
    },
    /// A host that is not lost does not answer a lookup.
    #[error(
        "{host} did not answer the lookup of \"{name}\" in time: thread 0 of {host} must be attached \
         (`Segments::attach(0)`) and poll"
    )]
    Unanswered {
        /// The name.
        name: Name,
        /// The host.
        host: HostId,
    },
    /// The rack has no such host.
    #[error("no {0} in this rack")]
    NoSuchHost(HostId),
    /// The length of a segment is zero.
    #[error("invalid length 0 of {0}: must be at least 1")]
    Empty(Label),
    /// The operation reaches beyond the segment.
    #[error("bytes {at}..{} are outside {segment} of {len} bytes", at.saturating_add(*count))]
    OutOfBounds {
        /// The segment.
        segment: Label,
        /// First byte of the operation.
        at: usize,
        /// Bytes of the operation.
        count: usize,
        /// Bytes of the segment.
        len: usize,
    },
    /// The owner does not allow this host the operation.
    #[error("{segment} allows this host {has:?}, the operation needs {needs:?}")]
    Rights {
        /// The segment.
        segment: Label,
        /// What the owner allows this host.
        has: Rights,
        /// What the operation needs.
        needs: Rights,
    },
    /// The owner allows this host nothing, so the segment cannot be opened.
    #[error(
        "cannot open {segment}: its owner allows {host} no operation, opening it needs READ, WRITE \
         or ATOMIC; let the owner export it with access for {host}"
    )]
    Denied {
        /// The segment.
        segment: Label,
        /// The host that opens it: this one.
        host: HostId,
    },
    /// The segment takes no notifications: it was exported with [`Notify::Never`](crate::Notify::Never).
    #[error("{0} is never notified: export it with `Notify::Conditional` or `Notify::Always`")]
    NeverNotified(Label),
    /// The offset is not a multiple of the alignment that the type or operation needs.
    #[error("misaligned offset {at} in {segment}: must be a multiple of {align}")]
    Misaligned {
        /// The segment.
        segment: Label,
        /// The offset in bytes.
        at: usize,
        /// The alignment in bytes.
        align: usize,
    },
    /// The operation exceeds [`MAX_OPERATION`](crate::MAX_OPERATION), or is more than a
    /// notification can report (4 GiB - 1).
    #[error(
        "{len} bytes exceed the {max} bytes of one operation: use write_block or read_block; split a \
         block with a notification"
    )]
    TooLarge {
        /// Bytes of the operation.
        len: usize,
        /// The most bytes of one operation.
        max: usize,
    },
    /// A map of this capacity exceeds the address space.
    #[error("{capacity} entries of {entry_len} bytes exceed the address space: at most {max}")]
    MapTooLarge {
        /// The entries that the map should have room for.
        capacity: usize,
        /// Bytes of an entry, with its share of empty slots.
        entry_len: usize,
        /// The most entries of that length.
        max: usize,
    },
    /// The owner has revoked the segment since it was opened, or its access has been changing for
    /// longer than an operation waits.
    #[error("{segment}{} was revoked by its owner; open it again", of_generation(*generation))]
    Revoked {
        /// The segment.
        segment: Label,
        /// The generation of the export that was opened, if it is known.
        generation: Option<u32>,
    },
    /// A write or a notification would have to wait, because too much is in flight, where waiting is
    /// impossible: inside a callback of notifications, or outside a fiber on a thread that has
    /// fibers. Nothing was done.
    #[error(
        "cannot write to or notify {0} here: too much is in flight, and neither a notification \
         callback nor code outside a fiber can wait on this thread; write less, or write from a fiber"
    )]
    WouldWait(Label),
    /// A record was torn at every attempt: its writer died in the middle of a write, or writes
    /// without pause.
    #[error(
        "the record at byte {at} of {segment} was torn each time it was read: its writer has died in \
         the middle of a write, or writes without pause"
    )]
    Torn {
        /// The segment.
        segment: Label,
        /// Where the record begins.
        at: usize,
    },
    /// The owner is gone.
    #[error("{0} is gone")]
    PeerLost(HostId, #[source] LossReason),
    /// Memory could not be exported or imported.
    #[error("cannot export or import {segment}")]
    Region {
        /// The segment.
        segment: Label,
        /// Why.
        #[serde(with = "portable::shared")]
        source: Arc<RegionError>,
    },
    /// The new access would allow a host more than the export did.
    #[error(
        "cannot grant {host} {asked:?} on {segment}: the export allowed {allowed:?}; export a new \
         segment instead"
    )]
    Broader {
        /// The segment.
        segment: Label,
        /// The host that would get more.
        host: HostId,
        /// The rights that it would get.
        asked: Rights,
        /// The rights that the export gave it.
        allowed: Rights,
    },
    /// A change of access revoked the segment, and could not export it again.
    #[error("{segment} is not exported: no host can use it until its access is changed again")]
    NotExported {
        /// The segment.
        segment: Label,
        /// Why it could not be exported again.
        #[serde(with = "portable::shared")]
        source: Arc<RegionError>,
    },
    /// The segment is revoked, but a host that had opened it may still write to the memory: it is lost
    /// or has left the rack without its process having ended, or a thread of it has not polled for too
    /// long. Do not use the memory for anything else. The segment cannot be exported again.
    #[error(
        "{segment} is revoked, but {} may still access its memory; export a new segment instead",
        Hosts(hosts)
    )]
    NotQuiet {
        /// The segment.
        segment: Label,
        /// The hosts that may access it; empty if that is not known.
        hosts: Vec<HostId>,
    },
    /// The owner changed the access to the segment while writes were in flight, which means that no
    /// fence had covered them. Each of them took effect completely, in part, or not at all: a transport
    /// may send one write as several messages, and the owner refuses those that come after the change.
    /// Only a word, which is eight bytes at a multiple of eight, is never written in part.
    #[error(
        "the owner of {0} changed its access while writes were in flight: some writes since the \
         last fence may have been refused or written in part, others took effect; read before you \
         write again"
    )]
    AccessChanged(Label),
    /// A lane could not be opened.
    #[error("cannot attach this thread to the rack under this number")]
    Lane(
        #[source]
        #[serde(with = "portable::shared")]
        Arc<LaneError>,
    ),
    /// A system call failed.
    #[error("{what}")]
    System {
        /// The action that failed.
        what: String,
        /// The error of the system call.
        #[serde(with = "portable::shared_io_error")]
        source: Arc<std::io::Error>,
    },
    /// A fence found that the host had refused an earlier operation of this thread on memory that no
    /// open segment of this process uses: that of a segment that was dropped since.
    #[error("{host} refused an operation of this thread on memory that is no longer open here")]
    OtherRefused {
        /// The host.
        host: HostId,
        /// Why, with the key of the memory.
        source: OpError,
    },
    /// The transport refused an operation for another reason, which indicates a bug.
    #[error("the transport refused an operation on {segment}")]
    Refused {
        /// The segment.
        segment: Label,
        /// Why.
        source: OpError,
    },
}

impl SegmentError {
    /// Whether the system had no memory for an export or an import, which may succeed later.
    pub fn is_no_memory(&self) -> bool {
        let SegmentError::Region { source, .. } = self else { return false };
        let RegionError::NoMemory { source, .. } = &**source else { return false };
        // Other errors, such as a mapping that is not allowed, stay.
        source.kind() == std::io::ErrorKind::OutOfMemory
    }

    /// The error of an operation on `segment` that the transport has refused.
    #[cold]
    pub(crate) fn refused(segment: Label, error: OpError) -> Self {
        match error {
            OpError::OutOfBounds { at, count, len, .. } => {
                Self::OutOfBounds { segment, at, count, len }
            }
            OpError::Rights { has, needs, .. } => Self::Rights { segment, has, needs },
            OpError::Revoked { .. } => Self::Revoked { segment, generation: None },
            OpError::Misaligned(at) => Self::Misaligned { segment, at, align: 8 },
            OpError::PeerLost(host, reason) => Self::PeerLost(host, reason),
            source => Self::Refused { segment, source },
        }
    }

    /// The error of an operation on memory of `host` that no open segment uses.
    #[cold]
    pub(crate) fn other_refused(host: HostId, error: OpError) -> Self {
        match error {
            OpError::PeerLost(host, reason) => Self::PeerLost(host, reason),
            source => Self::OtherRefused { host, source },
        }
    }

    /// The error of an export or an import.
    #[cold]
    pub(crate) fn region(segment: Label, error: RegionError) -> Self {
        match error {
            RegionError::KeyTaken(_) => Self::NameTaken(segment.name),
            RegionError::Broader { host, asked, allowed, .. } => {
                Self::Broader { segment, host, asked, allowed }
            }
            RegionError::PeerLost(host, reason) => Self::PeerLost(host, reason),
            error => Self::Region { segment, source: Arc::new(error) },
        }
    }
}

impl SegmentError {
    pub(crate) fn lane(error: LaneError) -> Self {
        Self::Lane(Arc::new(error))
    }

    #[cold]
    pub(crate) fn io(what: impl Into<String>, error: std::io::Error) -> Self {
        Self::System { what: what.into(), source: Arc::new(error) }
    }
}

/// Formats hosts as `host 1, host 3`, or as `any host`.
struct Hosts<'a>(&'a [HostId]);

impl fmt::Display for Hosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("any host");
        }
        for (number, host) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{host}")?;
        }
        Ok(())
    }
}

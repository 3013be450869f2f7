//! Named remote memory: segments that other hosts read and write one-sidedly, and whose owners are
//! notified on request.
//!
//! A process *exports* memory under a name; any other process of the rack *opens* it and reads,
//! writes and swaps words there, without involving the exporter's program. Notification is
//! separate: a writer requests it explicitly. So control and data travel apart, as in Thekkath,
//! Levy and Lazowska 1994, "Separating Data and Control Transfer in Distributed Operating Systems".
//!
//! ```
//! # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
//! # let segments = gossamer_segment::Segments::new(hosts[0].clone());
//! # let _attached = segments.attach(0)?;
//! let owner = segments.builder("prices").len(64 << 10).export()?;
//!
//! // Any thread of any host:
//! let prices = segments.open("prices")?;
//! prices.at::<u64>(3).write(&70)?; //         in flight
//! prices.fence()?; //                         arrived
//! prices.at::<u64>(4).write_notify(&71)?; //  notifies the owner
//!
//! let seen = owner.notified()?;
//! assert_eq!((seen.offset, seen.len), (32, 8));
//! assert_eq!(owner.at::<u64>(4).read()?, 71);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading order
//!
//! Roughly lowest first.
//!
//! 1. `name.rs`, `probing.rs` and `table/` (the registry's entries and table, pure), `error.rs`;
//!    `record/` ([`Record`], pure as well), `span.rs`.
//! 2. `clerk/` (the names of this process, and a cache of those of others), `notification/`
//!    without its last two files (the queue of notifications, callbacks), `shared.rs`.
//! 3. `engine/` (the lanes of an attached thread: operations, flow control, waiting; the thread that serves
//!    others); then `notification/wait.rs` and `next.rs` ([`Notifications`], [`Next`]).
//! 4. `lookup.rs` (finding a name by READs), `published.rs` (names of objects of other layers).
//! 5. `local/` ([`Segment`]), `remote/` ([`RemoteSegment`]).
//! 6. `segments.rs` ([`Segments`]), `map/` ([`RecordMap`], [`RemoteMap`]), `tasks.rs` (operations as futures, with the feature `tokio`).

#![forbid(unsafe_code)]

mod clerk;
#[cfg(all(feature = "testing", not(loom)))]
pub mod conformance;
mod engine;
mod error;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzzing;
mod local;
mod lookup;
mod map;
mod name;
mod notification;
mod probing;
mod published;
mod record;
mod remote;
mod segments;
mod shared;
mod span;
#[allow(unreachable_pub, reason = "reachable with the feature `testing`")]
mod table;
#[cfg(feature = "tokio")]
mod tasks;

/// The registry's table and lookups in it, for tests and models.
#[cfg(any(feature = "testing", loom))]
#[doc(hidden)]
pub mod testing {
    pub use crate::table::{
        ENTRY_BYTES, Lookup, Next, Probe, REGISTRY_BYTES, Table, TableError, home_slot,
    };
}

pub use transport_api::{Access, HostId, Rights};

pub use self::engine::{Attached, Server};
pub use self::error::{Label, SegmentError};
pub use self::local::{Element, Segment, SegmentBuilder};
pub use self::lookup::Found;
pub use self::map::{MapFull, Plain, Probed, RecordMap, RemoteMap};
pub use self::name::{InvalidName, Name};
pub use self::notification::{Next, Notification, Notifications};
pub use self::published::PublishedName;
pub use self::record::{Record, RecordWriter, Torn};
pub use self::remote::{MAX_OPERATION, OpenOptions, RemoteElement, RemoteRecord, RemoteSegment};
pub use self::segments::Segments;
pub use self::shared::{Job, Spawn};
pub use self::table::{Entry, Malformed, Notify, Published, Strategy};
#[cfg(feature = "tokio")]
pub use self::tasks::Pending;

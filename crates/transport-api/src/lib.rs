//! The contract between the delegation core and the transports.
//!
//! Everything that crosses the rack is a one-sided write into memory that its owner exported;
//! waking a thread is always a separate, explicit act. This crate defines these terms for every
//! transport: shared memory, TCP and RDMA.
//!
//! Reading order:
//! 1. [`HostId`], [`ThreadId`]: the names of hosts and threads.
//! 2. [`Region`], [`RemoteRegion`], [`Rights`]: exported memory, and what a peer holds of it;
//!    [`Window`]: the operations on it where it is mapped.
//! 3. [`Lane`]: one thread's ordered path to one host, and the [`Event`]s it reports.
//! 4. [`Parker`]: how an idle thread sleeps and is woken; [`park_word`]: the protocol by which no wake
//!    is lost.
//! 5. [`Transport`]: one process's place in the rack, which makes all of the above; [`Carrier`]: one
//!    on which another can stand.
//! 6. [`EventQueues`]: events that wait for the lanes of the threads that they are for;
//!    [`PollTracker`]: which threads poll, so that the service thread does it for the others. For
//!    backends in which one thread may read what is for another. [`Waiting`]: what a lane holds back.
//! 7. [`Cell`]: memory that two threads hand back and forth, made from two regions.
//! 8. [`NoticeEnd`]: short messages between two threads through shared memory, which arrive with one
//!    cache line.
//! 9. [`portable`]: how errors travel, which delegated closures return.
//! 10. `conformance`, with the feature `testing`: the suite that every backend passes, instantiated by
//!     one macro.

#![forbid(unsafe_code)]

mod access;
mod cell;
#[cfg(all(not(loom), feature = "testing"))]
pub mod conformance;
mod error;
mod event_queues;
pub mod integrity;
mod lane;
mod namespace;
mod notice_slots;
mod outbox;
pub mod park_word;
pub mod portable;
mod progress;
mod quiet;
mod region;
mod transport;
mod waiting;
mod window;

pub use access::{Access, Rights};
pub use cell::{Cell, Offer};
pub use error::{LaneError, LossReason, OpError, RegionError};
pub use event_queues::{EventQueue, EventQueues};
pub use lane::{
    Event, Lane, Notification, Parker, PeerEvent, Watch, write_and_signal, write_staged,
};
pub use namespace::{Namespace, RegionKey, Tag};
pub use notice_slots::{NOTICE_SLOTS, NOTICE_SLOTS_BYTES, Notice, NoticeEnd};
pub use outbox::{NoticeInbox, NoticeOutbox, Rouse};
pub use progress::{PollTracker, ProgressThread};
pub use quiet::QuietPoints;
#[cfg(not(loom))]
pub use region::next_issuer;
pub use region::{Region, RemoteRegion};
pub use transport::{Carrier, HostId, ThreadId, Transport, deadline};
pub use waiting::{WAITING_OVERHEAD, Waiting};
pub use window::Window;

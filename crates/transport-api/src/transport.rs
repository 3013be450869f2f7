//! [`HostId`], [`ThreadId`]: the names of hosts and threads; [`Transport`]: one process's place in a
//! rack.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use std::{fmt, io};

use primitive::SharedBytes;
use serde::{Deserialize, Serialize};

use crate::{Access, Lane, LaneError, Parker, Region, RegionError, RegionKey, RemoteRegion};

/// A timeout that outlives every process.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// For backends: the instant `timeout` after `now`, however long that is.
pub fn deadline(now: Instant, timeout: Duration) -> Instant {
    now.checked_add(timeout).unwrap_or(now + FOREVER)
}

/// One host of a rack: one process of it on one machine. Hosts count from zero without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostId(pub u32);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.0)
    }
}

/// One runtime thread of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadId {
    /// The host the thread runs on.
    pub host: HostId,
    /// The thread among those of its host, from zero.
    pub thread: u32,
}

impl ThreadId {
    /// The thread's number, counted through all hosts of a rack with `threads` threads on each.
    ///
    /// ```
    /// use gossamer_transport_api::{HostId, ThreadId};
    /// let thread = ThreadId { host: HostId(2), thread: 1 };
    /// assert_eq!(thread.number(4), 9);
    /// assert_eq!(ThreadId::from_number(9, 4), thread);
    /// ```
    #[inline(always)]
    pub fn number(self, threads: u32) -> u32 {
        self.host.0 * threads + self.thread
    }

    /// The thread with this number, in a rack with `threads` threads on each host.
    ///
    /// # Panics
    /// If `threads` is zero.
    #[inline]
    pub fn from_number(number: u32, threads: u32) -> ThreadId {
        ThreadId { host: HostId(number / threads), thread: number % threads }
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of {}", self.thread, self.host)
    }
}

/// One process's place in a rack.
///
/// Every host has the same number of threads. Calls on the transport itself are for set-up and may
/// block; what is on a path that matters happens on the [`Lane`]s it opens.
pub trait Transport: Send + Sync + 'static {
    /// This process's host.
    fn local(&self) -> HostId;

    /// Hosts in the rack, this one included.
    fn hosts(&self) -> u32;

    /// Runtime threads of every host.
    fn threads(&self) -> u32;

    /// Whether this host and `peer` map each other's regions:
    /// [`RemoteRegion::mapped`](crate::RemoteRegion::mapped) is then there for every region that
    /// may be read and written.
    fn maps(&self, peer: HostId) -> bool;

    /// Whether this host may use the processor's atomics on the regions of `peer` that it maps: they are
    /// then atomic with those of all other hosts. Not where a device carries out those of others: there
    /// this host's go over its lane, even to its own regions.
    fn maps_atomics(&self, peer: HostId) -> bool {
        self.maps(peer)
    }

    /// Whether what this host sends to `peer` travels as one ordered stream, which the system checks:
    /// a [`signal`](Lane::signal) then shares the message of the [`write`](Lane::write) before it, and
    /// costs next to nothing. Where that is not so, nor memory mapped, each of the two is a message,
    /// and a layer that wants a single one sends a checksum with its data
    /// ([`integrity`](crate::integrity)).
    fn streams(&self, peer: HostId) -> bool {
        let _ = peer;
        false
    }

    /// Whether all data that arrives here was sent by a host of the rack. If not, as over RDMA, other
    /// machines or processes can forge data, and layers above must not take the sender's number as
    /// proof: a rack then runs only jams that are signed.
    fn is_authenticated(&self) -> bool;

    /// Makes `len` zeroed bytes of this process's memory accessible to the hosts of the rack under
    /// `key`, to each as `access` says. The region lives until the returned [`Region`] and all its
    /// clones are dropped or it is revoked.
    ///
    /// # Errors
    /// [`RegionError::KeyTaken`], [`RegionError::NoMemory`].
    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError>;

    /// Withdraws an export, as the revocation of Thekkath, Levy and Lazowska 1994, section 3: once
    /// this returns, operations that peers start fail with
    /// [`OpError::Revoked`](crate::OpError::Revoked), and the key may be exported again, as a new
    /// generation. It may block until peers know, for two seconds at most. Operations that were
    /// started earlier may still be under way: see [`begin_revoke`](Self::begin_revoke).
    ///
    /// # Errors
    /// [`RegionError::Unknown`].
    fn revoke(&self, key: RegionKey) -> Result<(), RegionError>;

    /// Withdraws an export as [`revoke`](Self::revoke) does, without blocking, and reports
    /// [`Event::Completed`](crate::Event::Completed) on the lane of `thread` to this host once the
    /// region is quiet: no operation of any lane touches its memory from then on. On transports that
    /// map memory, every thread that has a lane to this host must have polled it, or be parked, or
    /// have ended with its process; bare [`mapped`](crate::RemoteRegion::mapped) memory is not
    /// covered. A thread that does none of it, such as one of a process that a signal has stopped, may
    /// write later, and nothing keeps it from that: the report names its host as below, after a time
    /// that is long enough for threads that compute for a while: 20 seconds over shared memory and, for
    /// threads of this host, over TCP and RDMA.
    ///
    /// A host that is lost answers nothing. Devices and owners that carry out operations cut it off.
    /// Where it maps the memory, nothing does as long as its process runs: if that does not end within
    /// some seconds, the report is [`Event::Failed`](crate::Event::Failed) with
    /// [`OpError::NotQuiet`](crate::OpError::NotQuiet), as it is at once if this process cannot watch
    /// its peers any more. The region is then revoked, but its memory must not be used for anything
    /// else.
    ///
    /// # Errors
    /// [`RegionError::Unknown`].
    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError>;

    /// Exports the memory of `region` again, under the same key as the next generation, with other
    /// access: so an owner gives or takes rights without new memory. `region` must have been
    /// revoked, and its owner must have waited until it is quiet
    /// ([`begin_revoke`](Self::begin_revoke), which must not have failed): an operation that was under
    /// way may otherwise still write. The bytes stay as they are. Imports of earlier generations stay revoked; importers
    /// import the new one. It lives and ends as every export; `region` itself may be dropped.
    ///
    /// No host may get more rights than the first export of this memory gave it; within those,
    /// rights come and go. Where memory is mapped, a process that had rights to write keeps its
    /// mapping, and only the checks of its lanes hold it back: against a malicious process only new
    /// memory helps.
    ///
    /// # Errors
    /// [`RegionError::Foreign`] if another transport exported `region`, [`RegionError::Broader`],
    /// [`RegionError::KeyTaken`] if the key is exported, as it is if `region` was not revoked;
    /// [`RegionError::NoMemory`].
    fn reexport(&self, region: &Region, access: Access) -> Result<Region, RegionError>;

    /// Gains access to a region that `owner` exports under `key`, waiting up to `timeout` for it
    /// to be exported. A host may import its own regions. This blocks the calling thread, and so is
    /// for set-up; [`begin_import`](Self::begin_import) does not.
    ///
    /// # Errors
    /// [`RegionError::Unknown`] after `timeout`, [`RegionError::NoAnswer`] some seconds after it,
    /// [`RegionError::Denied`], [`RegionError::PeerLost`].
    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError>;

    /// Begins to import a region, and returns at once: [`Event::Imported`](crate::Event::Imported)
    /// on the lane of `thread` to `owner` carries `token` and what [`import`](Self::import) would
    /// have returned. `thread` must have opened that lane.
    ///
    /// # Errors
    /// [`RegionError::NoSuchHost`], [`RegionError::PeerLost`].
    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError>;

    /// Opens the path of runtime thread `thread` of this host to `peer` (which may be this host).
    /// A thread opens one lane to a host, once, and keeps it.
    ///
    /// # Errors
    /// [`LaneError`] when the thread or host does not exist or the lane is already open.
    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError>;

    /// The parker of runtime thread `thread` of this host: where it sleeps when it is idle.
    /// The thread takes it once and keeps it.
    ///
    /// # Errors
    /// As [`lane`](Self::lane).
    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError>;

    /// Wakes runtime thread `thread` of this host if it sleeps on its [`Parker`], from any thread of
    /// this process: what lets other threads of the process hand work to a runtime thread. Does
    /// nothing if there is no such thread.
    fn unpark(&self, thread: u32);

    /// How many queue pairs this process has on RDMA devices now: connections of such a device,
    /// which cost it memory. None, if the transport uses no such device.
    fn queue_pairs(&self) -> u32 {
        0
    }

    /// Says goodbye: peers see [`PeerEvent::Left`](crate::PeerEvent::Left), after everything that
    /// lanes of this host had flushed before, and no loss when this process ends. Operations of
    /// peers on this host fail once they have seen it.
    fn leave(&self);
}

/// A transport on which another one can stand that moves data by other means: it has joined the
/// hosts, knows their numbers, carries bulk payloads, and notices when one of them is gone.
pub trait Carrier: Transport {
    /// From now on the parker of runtime thread `thread` of this host does not sleep while `file` is
    /// readable. The thread that sleeps there reads it.
    ///
    /// # Errors
    /// What the system says when `file` cannot be watched, or there is no such thread.
    fn watch(&self, thread: u32, file: &dyn AsFd) -> io::Result<()>;

    /// As [`export`](Transport::export), of memory that is there already: as long and as aligned
    /// as one exported.
    ///
    /// # Errors
    /// [`RegionError::KeyTaken`].
    fn export_memory(
        &self,
        key: RegionKey,
        memory: SharedBytes,
        access: Access,
    ) -> Result<Region, RegionError>;

    /// Cuts this host off from the others without a goodbye, as a crash would: they report it as
    /// lost, and it reports them.
    fn sever(&self);
}

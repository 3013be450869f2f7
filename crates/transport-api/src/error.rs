//! What can go wrong with a transport: one enum per kind of call.

use primitive::limits::MESSAGE_BYTES;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Access, HostId, PeerEvent, RegionKey, Rights};

/// Why a peer is gone.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum LossReason {
    /// Its process ended without saying goodbye.
    #[error("process {pid} exited ({how})")]
    ProcessEnded {
        /// The process id on its machine.
        pid: u32,
        /// Exit status or signal, in words, as far as known.
        how: String,
    },
    /// The connection failed or went silent.
    #[error("{0}")]
    Connection(String),
    /// It violated the protocol; the text contains what it sent.
    #[error("it sent something that no peer of this build sends: {0}")]
    Protocol(String),
}

/// Why a region could not be exported, revoked or imported.
#[derive(Debug, Error, Serialize, Deserialize)]
pub enum RegionError {
    /// The key is exported already.
    #[error("region {0:?} is already exported by this host; revoke it first or choose another key")]
    KeyTaken(RegionKey),
    /// A region is exported again with more rights than its first export gave a host.
    #[error(
        "region {key:?} cannot be exported again with {asked:?} for {host}, which its first export \
         allowed {allowed:?}; export new memory instead"
    )]
    Broader {
        /// The region.
        key: RegionKey,
        /// The host that would get more.
        host: HostId,
        /// What it was to be allowed.
        asked: Rights,
        /// What the first export allowed it.
        allowed: Rights,
    },
    /// The region was exported by another transport.
    #[error("region {0:?} was not exported by this transport; use the transport that exported it")]
    Foreign(RegionKey),
    /// The owner exports no region under the key.
    #[error("{owner} exports no region {key:?}")]
    Unknown {
        /// The host that was asked.
        owner: HostId,
        /// The key that was asked for.
        key: RegionKey,
    },
    /// The owner is connected, but does not answer: whether it exports the region is not known.
    #[error("{owner} did not answer in time whether it exports region {key:?}")]
    NoAnswer {
        /// The host that was asked.
        owner: HostId,
        /// The key that was asked for.
        key: RegionKey,
    },
    /// The owner allows this host nothing.
    #[error("{owner} gives this host no rights on region {key:?}")]
    Denied {
        /// The host that was asked.
        owner: HostId,
        /// The key that was asked for.
        key: RegionKey,
    },
    /// The system has no memory, or this process no descriptor, for the export or the import.
    #[error("no memory or descriptor for a region of {len} bytes")]
    NoMemory {
        /// Bytes of the region.
        len: usize,
        /// What the system said.
        #[serde(with = "crate::portable::io_error")]
        source: std::io::Error,
    },
    /// The owner is gone.
    #[error("{0} is gone")]
    PeerLost(HostId, #[source] LossReason),
    /// There is no such host in the rack.
    #[error("no {0} in this rack")]
    NoSuchHost(HostId),
    /// A revocation has ended although the region is not known to be quiet.
    #[error("{}", not_quiet(*key, hosts))]
    NotQuiet {
        /// The region.
        key: RegionKey,
        /// The hosts that may still access its memory.
        hosts: Vec<HostId>,
    },
}

/// The message about a region that is revoked, and that `hosts` may still access.
fn not_quiet(key: RegionKey, hosts: &[HostId]) -> String {
    let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    format!(
        "region {key:?} is revoked, but {} may still access its memory; do not use the memory again",
        hosts.join(", ")
    )
}

impl RegionError {
    /// For backends: whether memory that was first exported with access `first` may be exported
    /// again under `key` with `access`, in a rack of this many hosts.
    ///
    /// # Errors
    /// [`RegionError::Broader`], if a host would be allowed more.
    pub fn check_reexport(
        key: RegionKey,
        (first, access): (&Access, &Access),
        hosts: u32,
    ) -> Result<(), Self> {
        let broader = (0..hosts).map(HostId).find_map(|host| {
            let (asked, allowed) = (access.of(host), first.of(host));
            (!allowed.allow(asked)).then_some(Self::Broader { key, host, asked, allowed })
        });
        broader.map_or(Ok(()), Err)
    }

    /// For backends: the error of an import from `owner`, whose end is `event`, if it is known.
    pub fn lost(owner: HostId, event: Option<&PeerEvent>) -> Self {
        let unknown = || LossReason::Connection("its connection is closed".into());
        Self::PeerLost(owner, event.map_or_else(unknown, PeerEvent::reason))
    }
}

/// Why a lane or a parker could not be opened.
#[derive(Debug, Error, Serialize, Deserialize)]
pub enum LaneError {
    /// There is no such thread on a host of this rack.
    #[error("no thread {0} in this rack: every host has {1} threads")]
    NoSuchThread(u32, u32),
    /// There is no such host in the rack.
    #[error("no {0} in this rack")]
    NoSuchHost(HostId),
    /// It is open already.
    #[error("thread {0} has opened this to {1} before; a thread opens it once and keeps it")]
    AlreadyOpen(u32, HostId),
    /// The system refused something that it needs.
    #[error("cannot open the lane")]
    System(
        #[from]
        #[serde(with = "crate::portable::io_error")]
        std::io::Error,
    ),
}

impl LaneError {
    /// For backends: whether a host with this many threads has `thread`.
    ///
    /// # Errors
    /// [`LaneError::NoSuchThread`], if it has not.
    pub fn check_thread(thread: u32, threads: u32) -> Result<(), Self> {
        if thread < threads { Ok(()) } else { Err(Self::NoSuchThread(thread, threads)) }
    }
}

/// Why an operation on a lane failed.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum OpError {
    /// The operation reaches beyond the region.
    #[error("bytes {at}..{} are outside region {key:?} of {len} bytes", at.saturating_add(*count))]
    OutOfBounds {
        /// The region.
        key: RegionKey,
        /// First byte of the operation.
        at: usize,
        /// Bytes of the operation.
        count: usize,
        /// Bytes of the region.
        len: usize,
    },
    /// The owner does not allow it.
    #[error("region {key:?} allows {has:?}, the operation needs {needs:?}")]
    Rights {
        /// The region.
        key: RegionKey,
        /// What the owner allows.
        has: Rights,
        /// What the operation needs.
        needs: Rights,
    },
    /// The owner has withdrawn the region since it was imported.
    #[error("generation {generation} of region {key:?} was revoked by its owner; import it again")]
    Revoked {
        /// The region.
        key: RegionKey,
        /// Its generation when it was imported.
        generation: u32,
    },
    /// A word operation at an address that is not a multiple of eight.
    #[error("byte {0} of a word operation is not a multiple of 8")]
    Misaligned(usize),
    /// The region does not belong to this lane's peer or transport.
    #[error("region {0:?} was not imported from this lane's peer")]
    Foreign(RegionKey),
    /// A bulk payload above the limit.
    #[error("payload of {0} bytes exceeds the limit of {1}")]
    TooLarge(usize, usize),
    /// There is no such thread at the peer.
    #[error("no thread {0} on {1}")]
    NoSuchThread(u32, HostId),
    /// The peer is gone.
    #[error("{0} is gone")]
    PeerLost(HostId, #[source] LossReason),
    /// A revocation has ended although the region is not known to be quiet: a host that had imported it
    /// is lost and may still run, or a thread of it has not polled for too long.
    #[error("{}", not_quiet(*key, hosts))]
    NotQuiet {
        /// The region.
        key: RegionKey,
        /// The hosts that may still access its memory.
        hosts: Vec<HostId>,
    },
}

impl OpError {
    /// The region that the operation was refused on, if that is what it is about.
    pub fn key(&self) -> Option<RegionKey> {
        match self {
            Self::OutOfBounds { key, .. }
            | Self::Rights { key, .. }
            | Self::Revoked { key, .. }
            | Self::NotQuiet { key, .. }
            | Self::Foreign(key) => Some(*key),
            Self::Misaligned(_)
            | Self::TooLarge(..)
            | Self::NoSuchThread(..)
            | Self::PeerLost(..) => None,
        }
    }

    /// For backends: whether `count` bytes at `at` of a region with these rights and this length
    /// may be done to what needs `needs`.
    ///
    /// # Errors
    /// [`OpError::Rights`], [`OpError::OutOfBounds`].
    pub fn check(
        key: RegionKey,
        (has, len): (Rights, usize),
        (at, count, needs): (usize, usize, Rights),
    ) -> Result<(), Self> {
        if !has.allow(needs) {
            return Err(Self::Rights { key, has, needs });
        }
        if count > len || at > len - count {
            return Err(Self::OutOfBounds { key, at, count, len });
        }
        Ok(())
    }

    /// For backends: whether `host`, which has this many threads, has `thread`.
    ///
    /// # Errors
    /// [`OpError::NoSuchThread`], if it has not.
    pub fn check_thread(thread: u32, threads: u32, host: HostId) -> Result<(), Self> {
        if thread < threads { Ok(()) } else { Err(Self::NoSuchThread(thread, host)) }
    }

    /// For backends: whether a bulk payload may be so large.
    ///
    /// # Errors
    /// [`OpError::TooLarge`], if it may not.
    pub fn check_payload(bytes: usize) -> Result<(), Self> {
        if bytes <= MESSAGE_BYTES { Ok(()) } else { Err(Self::TooLarge(bytes, MESSAGE_BYTES)) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_is_not_quiet_names_its_hosts() {
        let error = OpError::NotQuiet { key: RegionKey(4), hosts: vec![HostId(1), HostId(3)] };
        assert_eq!(
            error.to_string(),
            "region bare/0x4 is revoked, but host 1, host 3 may still access its memory; do not use \
             the memory again"
        );
    }

    #[test]
    fn only_hosts_of_the_rack_count_when_access_is_compared() {
        let first = Access::all(Rights::READ).with(HostId(1), Rights::ALL);
        let check = |access: &Access, hosts| {
            RegionError::check_reexport(RegionKey(4), (&first, access), hosts)
        };
        assert!(check(&first, 3).is_ok() && check(&Access::none(), 3).is_ok());
        let narrower = Access::all(Rights::READ).with(HostId(1), Rights::WRITE);
        assert!(check(&narrower, 3).is_ok());
        let every_host = Access::all(Rights::ALL).with(HostId(0), Rights::READ);
        assert!(check(&every_host, 2).is_ok(), "there is no third host");
        let broader = check(&every_host, 3).expect_err("host 2 may only read");
        assert_eq!(
            broader.to_string(),
            "region bare/0x4 cannot be exported again with READ | WRITE | ATOMIC for host 2, which \
             its first export allowed READ; export new memory instead"
        );
    }
}

//! The segments of two hosts: what is where in them, and how each host knows what the other does.
//!
//! ```text
//! | STOP | PID | READY | 5 words | data, from DATA on ... |
//! ```
//! Each host exports one: host 1 [`EXPORTER`], which most measurements use, and host 0 [`IMPORTER`],
//! to which host 1 answers. The importer stops host 1 by a word in [`EXPORTER`] and a notification,
//! in case that host 1 sleeps.

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use primitive::sync::Ordering::Acquire;
use segment::{Attached, Notifications, RemoteSegment, Segment, SegmentError, Segments};
use thiserror::Error;
use transport_api::{HostId, Transport};

/// The name of the segment of host 1, the exporter.
pub(in crate::product) const EXPORTER: &str = "bench/exporter";
/// The name of the segment of host 0, the importer.
pub(in crate::product) const IMPORTER: &str = "bench/importer";
/// Bytes of each.
pub(in crate::product) const LEN: usize = 4 << 20;
/// Not zero once the exporter must stop.
pub(in crate::product) const STOP: usize = 0;
/// The process id of a segment's owner.
pub(in crate::product) const PID: usize = 8;
/// Not zero once the owner has prepared what the other host is to find.
pub(in crate::product) const READY: usize = 16;
/// Where data begins: far enough after the words above that a processor that fetches lines in pairs
/// does not fetch data when a host looks at [`STOP`].
pub(in crate::product) const DATA: usize = 256;
/// How long one host waits for the other.
pub(in crate::product) const TIMEOUT: Duration = Duration::from_secs(20);

/// Empty looks after which a host that polls reads the clock.
const LOOKS: u32 = 1 << 16;

/// Why a host gave up.
#[derive(Debug, Error)]
pub(in crate::product) enum HostError {
    /// A segment refused something.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The system did.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// Something that cannot be measured here, or took too long.
    #[error("{0}")]
    Other(String),
}

impl HostError {
    pub(in crate::product) fn other(text: impl Into<String>) -> HostError {
        HostError::Other(text.into())
    }
}

/// What a host has: a thread that is attached, its own segment, and the other's.
pub(in crate::product) struct Board {
    // Dropped in this order.
    pub(in crate::product) remote: RemoteSegment,
    pub(in crate::product) own: Segment,
    /// Of `own`: a program that waits for many keeps its handle.
    pub(super) notifications: Notifications,
    pub(in crate::product) attached: Attached,
    pub(in crate::product) segments: Segments,
}

impl Board {
    /// Attaches the calling thread, exports a segment and opens the other's.
    pub(in crate::product) fn new(transport: &Arc<dyn Transport>) -> Result<Board, HostError> {
        let segments = Segments::new(transport.clone());
        let attached = segments.attach(0)?;
        let (own, other) = if transport.local() == HostId(0) {
            (IMPORTER, EXPORTER)
        } else {
            (EXPORTER, IMPORTER)
        };
        let own = segments.builder(own).len(LEN).export()?;
        own.at(PID / 8).write(&u64::from(std::process::id()))?;
        let host = HostId(1 - transport.local().0);
        let remote = segments.options().host(host).timeout(TIMEOUT).open(other)?;
        let notifications = own.notifications();
        Ok(Board { remote, own, notifications, attached, segments })
    }

    /// Waits until the other host is ready.
    pub(in crate::product) fn wait_until_ready(&self) -> Result<(), HostError> {
        let (start, mut word) = (Instant::now(), [0; 8]);
        while word == [0; 8] {
            self.remote.read(READY, &mut word)?;
            if start.elapsed() > TIMEOUT {
                return Err(HostError::other("the other host was not ready in time"));
            }
        }
        Ok(())
    }

    /// The word at byte `at` of this host's segment.
    pub(in crate::product) fn word(&self, at: usize) -> u64 {
        self.own.memory().load(at, Acquire)
    }

    /// Polls until the word at byte `at` of this host's segment is `value`, or the other host
    /// stops this one; false then.
    pub(in crate::product) fn poll_for(&self, at: usize, value: u64) -> Result<bool, HostError> {
        self.poll_until(|| self.word(at) == value)
    }

    /// Polls until `is_there`, or the other host stops this one; false then.
    pub(in crate::product) fn poll_until(
        &self,
        is_there: impl Fn() -> bool,
    ) -> Result<bool, HostError> {
        self.look_until(|| {
            let is_there = is_there();
            if !is_there {
                self.attached.poll();
            }
            is_there
        })
    }

    /// Looks until `is_there`, which polls, or the other host stops this one; false then. A pause
    /// between two looks leaves the line to the peer that is about to write it.
    pub(in crate::product) fn look_until(
        &self,
        is_there: impl Fn() -> bool,
    ) -> Result<bool, HostError> {
        let mut start = None;
        let mut looks = 0u32;
        loop {
            if is_there() {
                return Ok(true);
            }
            if self.word(STOP) != 0 {
                return Ok(false);
            }
            spin_loop();
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                // Another thread of this process, on the same core, may have to do something first.
                std::thread::yield_now();
                let start = *start.get_or_insert_with(Instant::now);
                if start.elapsed() > TIMEOUT {
                    return Err(HostError::other("the other host did not answer in time"));
                }
            }
        }
    }

    /// Stops the other host.
    pub(in crate::product) fn stop_peer(&self) -> Result<(), HostError> {
        self.remote.write_notify(STOP, &1u64.to_ne_bytes())?;
        // Waits until it is there. The other host may have left before it answers.
        let _ = self.remote.fence();
        Ok(())
    }
}

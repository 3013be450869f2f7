//! Operations on a segment whose owner changes its access: importing it again.
//!
//! ```text
//!   operation --refused--> look the name up --another export, or none--> Revoked
//!       ^                     ^     | the same export
//!       |                     |     v
//!       |                     +-- import, a moment at a time: not exported yet
//!       |                           | imported
//!       +------- other rights ------+------- the same rights ----------> Rights
//! ```
//!
//! An operation waits for up to [`PEER_TIMEOUT`] in total. A change of access takes until the
//! slowest thread that maps the memory polls, so the timeout is long. Operations on other segments
//! do not wait.
//!
//! Writes are not acknowledged, so the owner refuses those in flight after `write` has returned: a
//! fence reports that ([`SegmentError::AccessChanged`]), and the next operation imports the region
//! again, because the refusal was counted ([`RefusalCount`]).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use transport_api::{OpError, RegionError, RemoteRegion, Rights};

use crate::engine::{Engine, PEER_TIMEOUT, attached};
use crate::error::{Label, SegmentError};
use crate::lookup;
use crate::notification::callback;
use crate::remote::segment::RemoteSegment;
use crate::shared::{RefusalCount, Shared};
use crate::span::Span;
use crate::table::{Entry, Notify};

/// How long an import waits for the export before the name is looked up again: the first and the
/// longest wait.
const SLICE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// How long an operation sleeps while the revocation of a region is in progress.
const REVOKING_PAUSE: Duration = Duration::from_millis(1);

/// What the entry of an open segment says.
pub(super) struct Origin {
    pub(super) label: Label,
    /// The segment's generation.
    pub(super) generation: u32,
    pub(super) notify: Notify,
    /// The thread of the owner that takes notifications.
    pub(super) thread: u32,
}

/// The state of an open segment besides its region.
pub(super) struct Info {
    pub(super) origin: Origin,
    /// Whether there is a `renewed` region.
    is_renewed: AtomicBool,
    /// The region since the owner has changed access.
    renewed: Mutex<Option<RemoteRegion>>,
    refusals: RefusalCount,
    /// The count up to which the region was imported again.
    settled: AtomicU32,
    /// Set once the owner no longer publishes this export, which is final; later operations skip the
    /// lookup.
    is_gone: AtomicBool,
}

impl Info {
    pub(super) fn new(shared: &Shared, region: &RemoteRegion, origin: Origin) -> Info {
        let Label { name, host } = origin.label;
        let refusals = shared.note_opened((host, region.key()), name, origin.generation);
        let settled = AtomicU32::new(refusals.count());
        let (is_renewed, is_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        Info { origin, is_renewed, renewed: Mutex::new(None), refusals, settled, is_gone }
    }

    /// Whether an operation that no caller waits for was refused since the last call. Always false
    /// inside a callback, which must not wait.
    fn has_doubt(&self) -> bool {
        let refusals = self.refusals.count();
        self.settled.load(Ordering::Relaxed) != refusals
            && !callback::is_running()
            && self.settled.swap(refusals, Ordering::Relaxed) != refusals
    }

    /// The region as it was imported last, if it was since the segment was opened.
    fn renewed(&self) -> Option<RemoteRegion> {
        if self.is_renewed.load(Ordering::Acquire) { self.renewed.lock().clone() } else { None }
    }

    fn renew(&self, region: &RemoteRegion) {
        *self.renewed.lock() = Some(region.clone());
        self.is_renewed.store(true, Ordering::Release);
    }
}

/// Why an operation has to look for another export of its segment.
enum Cause {
    /// The owner refuses it.
    Refused(OpError),
    /// The owner may refuse it: it has refused an earlier one.
    Doubt,
}

impl RemoteSegment {
    /// Runs an operation on the calling thread, which is attached; repeats it if the owner has
    /// changed the access since the segment was imported. `operation` may be called several times,
    /// and must not repeat effects that a refused call has had.
    #[track_caller]
    pub(super) fn with_engine<R>(
        &self,
        Span { at, len, needs }: Span,
        mut operation: impl FnMut(&Engine, &RemoteRegion) -> Result<R, OpError>,
    ) -> Result<R, SegmentError> {
        let engine = attached(&self.shared).ok_or(SegmentError::NotAttached)?;
        let mut renewed = self.info.renewed();
        let region = renewed.as_ref().unwrap_or(&self.region);
        // Errors that no rights can cure are returned before the owner is asked.
        OpError::check(region.key(), (Rights::ALL, region.len()), (at, len, needs))
            .map_err(|error| self.refused(error))?;
        let mut deadline = None;
        loop {
            let region = renewed.as_ref().unwrap_or(&self.region);
            let cause = if self.info.has_doubt() {
                Cause::Doubt
            } else {
                match operation(&engine, region) {
                    Ok(result) => return Ok(result),
                    Err(refused @ (OpError::Revoked { .. } | OpError::Rights { .. })) => {
                        Cause::Refused(refused)
                    }
                    Err(error) => return Err(self.refused(error)),
                }
            };
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + PEER_TIMEOUT);
            renewed = Some(self.renew(&engine, region, needs, cause, deadline)?);
        }
    }

    /// As [`with_engine`](Self::with_engine), for operations that must not wait, on an attached thread: runs
    /// one on the region that was imported last, and returns a refusal at once. To import the region again
    /// means waiting for the owner, which the next operation does that may wait. Nor is the owner asked
    /// because it has refused an earlier operation: if it refuses this one, too, the next fence says so.
    pub(super) fn try_with_region(
        &self,
        Span { at, len, needs }: Span,
        operation: impl FnOnce(&RemoteRegion) -> Result<(), OpError>,
    ) -> Result<(), SegmentError> {
        let renewed = self.info.renewed();
        let region = renewed.as_ref().unwrap_or(&self.region);
        region
            .check(at, len, needs)
            .and_then(|()| operation(region))
            .map_err(|error| self.refused(error))
    }

    /// The region as its owner exports it now.
    ///
    /// # Errors
    /// Why the operation fails, if it is not another region.
    #[track_caller]
    fn renew(
        &self,
        engine: &Engine,
        region: &RemoteRegion,
        needs: Rights,
        cause: Cause,
        deadline: Instant,
    ) -> Result<RemoteRegion, SegmentError> {
        let (refused, is_doubt) = match cause {
            Cause::Refused(error) => (error, false),
            Cause::Doubt => (
                {
                    let (key, generation) = (region.key(), region.generation());
                    OpError::Revoked { key, generation }
                },
                true,
            ),
        };
        // Where memory is mapped, this process can see whether the rights are current.
        let is_current = region.window().is_some_and(|window| window.is_live());
        let refused = self.refused(refused);
        // Looking for other rights means waiting.
        let is_over = Instant::now() >= deadline;
        if callback::is_running() || is_over || is_current && !is_doubt {
            return Err(refused);
        }
        if let Some(newest) = self.info.renewed()
            && newest.generation() > region.generation()
        {
            return Ok(newest);
        }
        let mut slice = SLICE.0;
        loop {
            self.check_published(engine)?;
            let left = deadline.saturating_duration_since(Instant::now());
            match engine.import(self.owner(), region.key(), slice.min(left)) {
                Ok(new) if new.len() != region.len() => {
                    return Err(self.revoked());
                }
                Ok(new) if new.generation() == region.generation() => {
                    if is_doubt {
                        return Ok(new);
                    }
                    // A transport may refuse operations on a region before it refuses imports.
                    let is_being_revoked = matches!(refused, SegmentError::Revoked { .. });
                    if !is_being_revoked || left.is_zero() {
                        return Err(refused);
                    }
                    engine.sleep(REVOKING_PAUSE.min(left));
                }
                Ok(new) => {
                    // The name may have been exported anew since the look, and the region is then
                    // another segment's.
                    self.check_published(engine)?;
                    engine.forget_refusals(self.owner());
                    self.info.renew(&new);
                    return Ok(new);
                }
                Err(RegionError::Denied { .. }) => {
                    let (segment, has) = (self.label(), Rights::NONE);
                    return Err(SegmentError::Rights { segment, has, needs });
                }
                Err(RegionError::Unknown { .. }) if left.is_zero() => {
                    return Err(self.revoked());
                }
                Err(RegionError::NoAnswer { .. }) if !left.is_zero() => {}
                Err(RegionError::Unknown { .. }) => slice = (slice * 2).min(SLICE.1),
                Err(error) => return Err(SegmentError::region(self.label(), error)),
            }
        }
    }

    /// Whether the name is still that of this export.
    ///
    /// # Errors
    /// [`SegmentError::Revoked`], if it is not.
    #[track_caller]
    fn check_published(&self, engine: &Engine) -> Result<(), SegmentError> {
        if !self.info.is_gone.load(Ordering::Relaxed) {
            let entry = lookup::at_host(engine, self.name(), self.owner())?;
            if entry.is_some_and(|entry| entry.generation == self.generation()) {
                return Ok(());
            }
            self.info.is_gone.store(true, Ordering::Relaxed);
        }
        Err(self.revoked())
    }

    /// The error of a fence of this thread on the lane to the owner.
    #[track_caller]
    pub(super) fn fence_error(&self, engine: &Engine, error: OpError) -> SegmentError {
        let host = self.owner();
        let named = error.key().and_then(|key| {
            // Of the exports under one key the one of this handle is meant.
            let is_own = key == self.region.key();
            let own = || (*self.name(), self.generation());
            if is_own { Some(own()) } else { self.shared.opened((host, key)) }
        });
        let Some((name, generation)) = named else {
            // Not this segment's fault: it must not look revoked.
            return SegmentError::other_refused(host, error);
        };
        let label = Label { name, host };
        let OpError::Revoked { key, .. } = error else {
            return SegmentError::refused(label, error);
        };
        self.shared.count_refusal((host, key));
        let is_same = |entry: Entry| entry.generation == generation;
        match lookup::at_host(engine, &name, host) {
            Ok(Some(entry)) if is_same(entry) => SegmentError::AccessChanged(label),
            _ => SegmentError::Revoked { segment: label, generation: Some(generation) },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use transport_api::{HostId, LossReason, Namespace, RegionKey};
    use transport_shm::ShmTransport;

    use super::*;
    use crate::segments::Segments;

    #[test]
    fn a_fence_blames_no_segment_for_the_refusal_of_one_that_was_dropped() {
        let host = HostId(0);
        let segments = Segments::new(ShmTransport::in_process(1, 1).expect("a rack").remove(0));
        let _attached = segments.attach(0).expect("attached");
        let _segment = segments.builder("mine").len(64).export().expect("a segment");
        let mine = segments.open("mine").expect("a segment");
        let engine = attached(&segments.0).expect("attached");
        // No open segment has this key: the record of a dropped one is gone once many were opened.
        let dropped =
            OpError::Revoked { key: RegionKey::new(Namespace::SEGMENTS, 77), generation: 0 };
        let error = mine.fence_error(&engine, dropped.clone());
        let SegmentError::OtherRefused { host: by, source } = &error else { panic!("{error}") };
        assert_eq!((*by, source), (host, &dropped));
        let own = OpError::Revoked { key: mine.region.key(), generation: 0 };
        let error = mine.fence_error(&engine, own);
        assert!(matches!(&error, SegmentError::AccessChanged(label) if label.name == *mine.name()));
        let lost = OpError::PeerLost(host, LossReason::Connection("silent".into()));
        let error = mine.fence_error(&engine, lost);
        assert!(matches!(error, SegmentError::PeerLost(by, _) if by == host), "{error}");
    }
}

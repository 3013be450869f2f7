//! [`Grants`]: the access of each host to a segment, and changing it while hosts use it.
//!
//! ```text
//!   exported --revoke, wait until quiet--> not exported --export the same memory--> exported
//!                                               |  ^
//!                                        failed |  | changed again
//!                                               v  |
//!                                           not exported: no host has access
//! ```
//!
//! The name stays published with the segment's own generation, so importers of the revoked export
//! detect that the segment still exists, and import it again (`remote/renewal.rs`).

use std::time::Duration;

use parking_lot::Mutex;
use transport_api::{Access, Region, RegionError, RegionKey, Rights};

use crate::engine::Engine;
use crate::error::{Label, SegmentError};

/// How long a change sleeps between two checks whether another one has ended: the first and the
/// longest sleep.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));

/// A change of access.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The granted access, which an inhibition still limits.
    Access(Access),
    /// Whether writes and atomics of all hosts are inhibited.
    Inhibited(bool),
}

struct State {
    /// The last export, kept after its revocation: the next one exports the same memory.
    region: Region,
    /// The granted access, regardless of the inhibition.
    granted: Access,
    is_inhibited: bool,
    /// The current access; `None` while it is not exported, because its access changes or a change
    /// has failed.
    now: Option<Access>,
    /// Whether a thread or fiber is changing it.
    is_changing: bool,
}

/// The access of each host to a segment.
pub(super) struct Grants {
    label: Label,
    key: RegionKey,
    /// The access that it was exported with, which later ones never exceed.
    first: Access,
    state: Mutex<State>,
}

/// Held by the thread or fiber that changes the access.
struct Changing<'a>(&'a Grants);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_changing = false;
    }
}

impl Grants {
    /// Those of a segment that was exported as `region`.
    pub(super) fn new(label: Label, region: Region) -> Self {
        let (key, first) = (region.key(), region.access().clone());
        let (granted, now) = (first.clone(), Some(first.clone()));
        let state = State { region, granted, is_inhibited: false, now, is_changing: false };
        Self { label, key, first, state: Mutex::new(state) }
    }

    /// The current access.
    pub(super) fn now(&self) -> Access {
        self.state.lock().now.clone().unwrap_or_else(Access::none)
    }

    /// Whether writes are inhibited.
    pub(super) fn is_inhibited(&self) -> bool {
        self.state.lock().is_inhibited
    }

    /// Waits until no other thread or fiber changes the access. It polls, because no lock can be held
    /// across the wait for a revocation: another fiber of this thread may want it.
    #[track_caller]
    fn begin_change(&self, engine: &Engine) -> Changing<'_> {
        let mut pause = PAUSE.0;
        loop {
            {
                let mut state = self.state.lock();
                if !state.is_changing {
                    state.is_changing = true;
                    return Changing(self);
                }
            }
            engine.sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Changes the access. Once this has returned, no operation that is no longer allowed is in
    /// flight.
    ///
    /// # Errors
    /// [`SegmentError::Broader`], and nothing has changed; [`SegmentError::NotExported`], and no host
    /// has access; [`SegmentError::RackEnded`].
    #[track_caller]
    pub(super) fn change(&self, engine: &Engine, change: Change) -> Result<(), SegmentError> {
        if let Change::Access(access) = &change {
            let hosts = engine.shared.transport.hosts();
            RegionError::check_reexport(self.key, (&self.first, access), hosts)
                .map_err(|error| SegmentError::region(self.label.clone(), error))?;
        }
        // What is withdrawn without a wait would later count as quiet.
        engine.check_may_wait("a change of access");
        let _changing = self.begin_change(engine);
        let (region, granted, is_inhibited, access) = {
            let mut state = self.state.lock();
            let (granted, is_inhibited) = match change {
                Change::Access(access) => (access, state.is_inhibited),
                Change::Inhibited(is_inhibited) => (state.granted.clone(), is_inhibited),
            };
            let access = if is_inhibited {
                granted.clone().limited_to(Rights::READ)
            } else {
                granted.clone()
            };
            if state.now.as_ref() == Some(&access) {
                (state.granted, state.is_inhibited) = (granted, is_inhibited);
                return Ok(());
            }
            // From here on, until it is exported again.
            state.now = None;
            (state.region.clone(), granted, is_inhibited, access)
        };
        self.withdraw(engine)?;
        let again = engine.shared.transport.reexport(&region, access.clone()).map_err(|error| {
            SegmentError::NotExported { segment: self.label.clone(), source: error.into() }
        })?;
        let before = {
            let mut state = self.state.lock();
            (state.granted, state.is_inhibited, state.now) = (granted, is_inhibited, Some(access));
            std::mem::replace(&mut state.region, again)
        };
        // Without the lock: dropping a region calls the transport.
        drop((before, region));
        Ok(())
    }

    /// Revokes the segment for good.
    #[track_caller]
    pub(super) fn revoke(&self, engine: &Engine) -> Result<(), SegmentError> {
        engine.check_may_wait("a revocation");
        let _changing = self.begin_change(engine);
        let was_exported = self.state.lock().now.take().is_some();
        if was_exported { self.withdraw(engine) } else { Ok(()) }
    }

    /// Revokes the last export, and waits until no operation accesses the memory.
    #[track_caller]
    fn withdraw(&self, engine: &Engine) -> Result<(), SegmentError> {
        match engine.revoke(self.key) {
            // An earlier change failed after its revocation.
            Ok(()) | Err(RegionError::Unknown { .. }) => Ok(()),
            Err(RegionError::PeerLost(..)) => Err(SegmentError::RackEnded),
            Err(error) => Err(SegmentError::region(self.label.clone(), error)),
        }
    }
}

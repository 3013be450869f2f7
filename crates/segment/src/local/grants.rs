//! [`Grants`]: what each host may do to a segment, and changing that while hosts use it.
//!
//! ```text
//!   exported --revoke, wait until quiet--> not exported --export the same memory--> exported
//!                                               |  ^
//!                                        failed |  | changed again
//!                                               v  |
//!                                           not exported: no host may do anything
//! ```
//!
//! The name stays published with the segment's own generation, so importers of the revoked export
//! find out that the segment is still there, and import it again (`remote/renewal.rs`).

use std::time::Duration;

use parking_lot::Mutex;
use transport_api::{Access, Region, RegionError, RegionKey, Rights};

use crate::engine::Engine;
use crate::error::{Label, SegmentError};

/// How long a change sleeps between two looks whether another one has ended, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));

/// A change of what hosts may do.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// To this, within which writes may be inhibited.
    Access(Access),
    /// Writes and atomics of all hosts are inhibited, or no longer.
    Inhibited(bool),
}

struct State {
    /// The last export, which is kept when it is revoked: the next one is of the same memory.
    region: Region,
    /// What was granted, without regard to the inhibition.
    granted: Access,
    is_inhibited: bool,
    /// What hosts may do now; `None` if it is not exported, because its access changes or a change
    /// has failed.
    now: Option<Access>,
    /// Whether a thread or fiber changes it.
    is_changing: bool,
}

/// What each host may do to a segment.
pub(super) struct Grants {
    label: Label,
    key: RegionKey,
    /// The access that it was exported with, which later ones never exceed.
    first: Access,
    state: Mutex<State>,
}

/// One thread or fiber may change the access as long as this lives.
struct Turn<'a>(&'a Grants);

impl Drop for Turn<'_> {
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

    /// What each host may do now.
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
    fn take_turn(&self, engine: &Engine) -> Turn<'_> {
        let mut pause = PAUSE.0;
        loop {
            {
                let mut state = self.state.lock();
                if !state.is_changing {
                    state.is_changing = true;
                    return Turn(self);
                }
            }
            engine.sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Changes what hosts may do. Once this has returned, no operation is under way that is not
    /// allowed any more.
    ///
    /// # Errors
    /// [`SegmentError::Broader`], and nothing has changed; [`SegmentError::NotExported`], and no host
    /// may do anything; [`SegmentError::RackEnded`].
    #[track_caller]
    pub(super) fn change(&self, engine: &Engine, change: Change) -> Result<(), SegmentError> {
        if let Change::Access(access) = &change {
            let hosts = engine.shared.transport.hosts();
            RegionError::check_reexport(self.key, (&self.first, access), hosts)
                .map_err(|error| SegmentError::region(self.label.clone(), error))?;
        }
        // What is withdrawn without a wait would later count as quiet.
        engine.check_may_wait("a change of access");
        let _turn = self.take_turn(engine);
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
        // Without the lock: it asks the transport.
        drop((before, region));
        Ok(())
    }

    /// Revokes the segment for good.
    #[track_caller]
    pub(super) fn revoke(&self, engine: &Engine) -> Result<(), SegmentError> {
        engine.check_may_wait("a revocation");
        let _turn = self.take_turn(engine);
        let was_exported = self.state.lock().now.take().is_some();
        if was_exported { self.withdraw(engine) } else { Ok(()) }
    }

    /// Revokes the last export, and waits until no operation touches the memory.
    #[track_caller]
    fn withdraw(&self, engine: &Engine) -> Result<(), SegmentError> {
        match engine.revoke(self.key) {
            // An earlier change has failed behind this.
            Ok(()) | Err(RegionError::Unknown { .. }) => Ok(()),
            Err(RegionError::PeerLost(..)) => Err(SegmentError::RackEnded),
            Err(error) => Err(SegmentError::region(self.label.clone(), error)),
        }
    }
}

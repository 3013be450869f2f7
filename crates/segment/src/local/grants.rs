//! [`Grants`]: the access of each host to a segment, and changing it while hosts use it.
//!
//! ```text
//!   Exported --revoke--> Withdrawing --quiet--> Quiet --export the same memory--> Exported
//!                            |                   |  ^
//!        may still be used:  |            failed |  | changed again
//!        for good            v                   v  |
//!                       Withdrawing             Quiet: no host has access
//! ```
//!
//! The name stays published with the segment's own generation, so importers of the revoked export
//! detect that the segment still exists, and import it again (`remote/renewal.rs`).

use std::time::Duration;

use parking_lot::Mutex;
use transport_api::{Access, HostId, Region, RegionError, RegionKey, Rights};

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

/// Which hosts may use the memory.
enum Export {
    /// It is exported with this access.
    Exported(Access),
    /// It is revoked, and operations that were in flight may still access the memory: the wait for
    /// them has not ended, or it has failed, because of these hosts. Then the memory is never
    /// exported again.
    Withdrawing(Vec<HostId>),
    /// It is revoked, and no operation accesses the memory.
    Quiet,
}

struct State {
    /// The last export, kept after its revocation: the next one exports the same memory.
    region: Region,
    /// The granted access, regardless of the inhibition.
    granted: Access,
    is_inhibited: bool,
    export: Export,
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
        let (granted, export) = (first.clone(), Export::Exported(first.clone()));
        let state = State { region, granted, is_inhibited: false, export, is_changing: false };
        Self { label, key, first, state: Mutex::new(state) }
    }

    /// The current access.
    pub(super) fn now(&self) -> Access {
        match &self.state.lock().export {
            Export::Exported(access) => access.clone(),
            Export::Withdrawing(_) | Export::Quiet => Access::none(),
        }
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
    /// has access; [`SegmentError::NotQuiet`], [`SegmentError::RackEnded`].
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
            if matches!(&state.export, Export::Exported(now) if *now == access) {
                (state.granted, state.is_inhibited) = (granted, is_inhibited);
                return Ok(());
            }
            (state.region.clone(), granted, is_inhibited, access)
        };
        self.withdraw(engine)?;
        let again = engine.shared.transport.reexport(&region, access.clone()).map_err(|error| {
            SegmentError::NotExported { segment: self.label.clone(), source: error.into() }
        })?;
        let before = {
            let mut state = self.state.lock();
            (state.granted, state.is_inhibited) = (granted, is_inhibited);
            state.export = Export::Exported(access);
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
        self.withdraw(engine)
    }

    /// Revokes the last export, unless it is revoked, and waits until no operation accesses the memory.
    ///
    /// # Errors
    /// [`SegmentError::NotQuiet`], also if an earlier wait has failed; [`SegmentError::RackEnded`].
    #[track_caller]
    fn withdraw(&self, engine: &Engine) -> Result<(), SegmentError> {
        {
            let mut state = self.state.lock();
            match &state.export {
                Export::Quiet => return Ok(()),
                Export::Withdrawing(hosts) => return Err(self.not_quiet(hosts.clone())),
                // From here on, until operations have certainly ended.
                Export::Exported(_) => state.export = Export::Withdrawing(Vec::new()),
            }
        }
        match engine.revoke(self.key) {
            Ok(()) => {
                self.state.lock().export = Export::Quiet;
                Ok(())
            }
            Err(RegionError::NotQuiet { hosts, .. }) => {
                self.state.lock().export = Export::Withdrawing(hosts.clone());
                Err(self.not_quiet(hosts))
            }
            Err(RegionError::PeerLost(..)) => Err(SegmentError::RackEnded),
            Err(error) => Err(SegmentError::region(self.label.clone(), error)),
        }
    }

    fn not_quiet(&self, hosts: Vec<HostId>) -> SegmentError {
        SegmentError::NotQuiet { segment: self.label.clone(), hosts }
    }
}

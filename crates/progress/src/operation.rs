//! [`Operation`] and [`Import`]: how a fiber begins an operation, and the handle that it waits with.

use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use transport_api::{HostId, Lane, OpError, RegionError, RemoteRegion};

use crate::progress::Progress;
use crate::tokens::{Kind, Outcome, Token};

impl Progress {
    /// Has `start` start an operation with this token on the lane to `host`: a read, an atomic or a
    /// fence. The next poll flushes it.
    ///
    /// # Errors
    /// Those of `start`. If `host` is gone, `start` is not called, and the wait returns the error.
    pub fn begin(
        self: &Rc<Self>,
        host: HostId,
        start: impl FnOnce(&mut dyn Lane, u64) -> Result<(), OpError>,
    ) -> Result<Operation, OpError> {
        self.begin_with(host, |token| self.start(host, |lane| start(lane, token)))
    }

    /// Has `start` start something that ends in [`Event::Completed`](transport_api::Event::Completed) or [`Event::Failed`](transport_api::Event::Failed) on the
    /// lane to `host`, such as [`Transport::begin_revoke`](transport_api::Transport::begin_revoke).
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_with<E>(
        self: &Rc<Self>,
        host: HostId,
        start: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Operation, E> {
        let token = self.begin_kind(host, Kind::Operation, start)?;
        Ok(Operation::new(Rc::clone(self), host, token))
    }

    /// Has `start` begin an import from `host`, by
    /// [`Transport::begin_import`](transport_api::Transport::begin_import).
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_import<E>(
        self: &Rc<Self>,
        host: HostId,
        start: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Import, E> {
        let token = self.begin_kind(host, Kind::Import, start)?;
        Ok(Import::new(Rc::clone(self), host, token))
    }
}

/// The token of an operation, which is abandoned when this is dropped.
struct Ticket {
    progress: Rc<Progress>,
    host: HostId,
    kind: Kind,
    token: Token,
}

impl Ticket {
    fn has_ended(&self) -> bool {
        self.progress.tokens().has_ended(self.token)
    }

    /// Parks the fiber until the operation has ended.
    #[track_caller]
    fn wait(self, place: &'static Location<'static>) -> Outcome {
        let mut wait = fiber::Wait::at(place);
        loop {
            let taken = self.progress.tokens().take(self.token);
            if let Some(outcome) = taken {
                return outcome;
            }
            fiber::check_may_wait("the wait for an operation", place);
            let fiber = fiber::current();
            assert!(fiber.is_some(), "the wait for an operation at {place} is outside a fiber");
            self.progress.tokens().set_waiter(self.token, fiber);
            wait.explain(|| Awaits(self.host));
            if !fiber::park_or_give_up() && !self.has_ended() {
                return Outcome::lost(self.kind, self.host, &Progress::ended());
            }
        }
    }
}

/// What a fiber waits for that has begun an operation.
struct Awaits(HostId);

impl fmt::Display for Awaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an operation on memory of {}", self.0)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.progress.tokens().abandon(self.token);
        self.progress.note_tokens();
    }
}

/// An operation under way: a read, an atomic, a fence or a revocation.
///
/// Dropping it takes nothing back: the operation goes on, and its result is dropped when it comes.
#[must_use = "an operation goes on without being waited for, and its result is lost"]
pub struct Operation(Ticket);

impl Operation {
    pub(crate) fn new(progress: Rc<Progress>, host: HostId, token: Token) -> Operation {
        Operation(Ticket { progress, host, kind: Kind::Operation, token })
    }

    /// Whether the operation has ended: [`wait`](Self::wait) does not park.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Parks the calling fiber until the operation has ended. Returns the old value of an atomic,
    /// the bytes of a read, otherwise zero.
    ///
    /// # Errors
    /// Why it could not be carried out; [`OpError::PeerLost`] also when the rack ends first.
    ///
    /// # Panics
    /// Outside a fiber and where [`fiber::Config::may_wait`] refuses, if the operation has not ended.
    #[track_caller]
    pub fn wait(self) -> Result<u64, OpError> {
        match self.0.wait(Location::caller()) {
            Outcome::Operation(result) => result,
            Outcome::Import(_) => unreachable!("tokens end as the kind they began with"),
        }
    }
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operation").field("host", &self.0.host).finish_non_exhaustive()
    }
}

/// An import under way.
///
/// Dropping it takes nothing back: the region is dropped when it comes.
#[must_use = "an import goes on without being waited for, and its region is lost"]
pub struct Import(Ticket);

impl Import {
    pub(crate) fn new(progress: Rc<Progress>, host: HostId, token: Token) -> Import {
        Import(Ticket { progress, host, kind: Kind::Import, token })
    }

    /// Whether the import has ended: [`wait`](Self::wait) does not park.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Parks the calling fiber until the import has ended.
    ///
    /// # Errors
    /// Why there is no region; [`RegionError::PeerLost`] also when the rack ends first.
    ///
    /// # Panics
    /// As [`Operation::wait`].
    #[track_caller]
    pub fn wait(self) -> Result<RemoteRegion, RegionError> {
        match self.0.wait(Location::caller()) {
            Outcome::Import(result) => result,
            Outcome::Operation(_) => unreachable!("tokens end as the kind they began with"),
        }
    }
}

impl std::fmt::Debug for Import {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Import").field("host", &self.0.host).finish_non_exhaustive()
    }
}

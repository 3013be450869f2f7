//! What this host imports: the requester's side of an import. Each ends exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use transport_api::{HostId, LossReason, RegionKey, deadline};

use crate::config::{ANSWER_GRACE, Medium, Reach};
use crate::control::peer::Link;
use crate::control::{Control, Request, Timer};
use crate::message::{Descriptor, Message, Refusal};
use crate::output::{ImportError, Output};
use crate::violation::Violation;

/// Names an import that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImportId(u64);

/// The answer to an import: the region, and what came beside the answer or is this host's own.
pub(super) type Answered<M> =
    (Descriptor, Option<<M as Medium>::Attachment>, Option<<M as Medium>::Export>);

/// An import that its owner has not answered.
struct Import<M: Medium> {
    owner: HostId,
    key: RegionKey,
    /// `None` once the import has ended for this host, because it timed out or was cancelled.
    requester: Option<M::Requester>,
    /// Until when it waits for an export.
    ends: Instant,
    /// When it ends although the owner has not answered.
    expires: Instant,
    was_sent: bool,
}

pub(super) struct Imports<M: Medium> {
    /// By number. What has ended is kept if it was sent, until the owner answers.
    pending: BTreeMap<u64, Import<M>>,
    /// What this host may use now and must stop using when it is revoked: owner, key, generation.
    pub(super) held: BTreeSet<(HostId, RegionKey, u32)>,
}

impl<M: Medium> Default for Imports<M> {
    fn default() -> Self {
        Self { pending: BTreeMap::new(), held: BTreeSet::new() }
    }
}

/// For threads of the program: imports.
impl<M: Medium> Control<M> {
    /// Asks `owner`, which may be this host, for the region that it exports under `key`, waiting up
    /// to `timeout` for an export. Ends with exactly one of [`Output::Imported`] and
    /// [`Output::ImportFailed`], which hands `requester` back.
    pub fn begin_import(
        &mut self,
        now: Instant,
        requester: M::Requester,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> ImportId {
        let (number, local) = (self.next_number(), owner == self.config.local);
        let ends = deadline(now, timeout);
        // Of its own exports this host knows at once.
        let grace = if local { Duration::ZERO } else { ANSWER_GRACE };
        let expires = deadline(now, timeout.saturating_add(grace));
        let requester = Some(requester);
        let import = Import { owner, key, requester, ends, expires, was_sent: false };
        self.imports.pending.insert(number, import);
        let refused = if local { None } else { self.refusal(owner) };
        if let Some(error) = refused {
            self.fail(number, error);
            self.imports.pending.remove(&number);
            return ImportId(number);
        }
        self.timers.insert((expires, Timer::Import(number)));
        if !local {
            self.peer(owner).requests.push_back(Request::Import(number));
            self.note_ready(owner);
        } else if self.exports.current.contains_key(&key) {
            self.tell(owner, number, key);
        } else if timeout.is_zero() {
            self.import_timed_out(number);
        } else {
            self.exports.waiting.entry(key).or_default().insert((owner, number));
        }
        ImportId(number)
    }

    /// Imports a region of this host if it is exported now, without a detour: the region and the
    /// transport's part of it. `None` if it is not exported, or not to this host.
    pub fn import_own(&mut self, key: RegionKey) -> Option<(Descriptor, M::Export)> {
        let (region, part) = self.describe(self.config.local, key)?.ok()?;
        self.imports.held.insert((self.config.local, key, region.generation));
        Some((region, part))
    }

    /// Ends an import, if it has not ended: [`Output::ImportFailed`] follows.
    pub fn cancel_import(&mut self, import: ImportId) {
        self.abandon(import.0, ImportError::Cancelled);
    }
}

impl<M: Medium> Control<M> {
    /// Why `owner` cannot be asked.
    fn refusal(&self, owner: HostId) -> Option<ImportError> {
        let Some(peer) = self.peers.get(owner.0 as usize).filter(|p| p.link != Link::Absent) else {
            return Some(ImportError::NoSuchHost);
        };
        if let Some(end) = &peer.end {
            return Some(ImportError::PeerGone(end.reason()));
        }
        let left = || LossReason::Connection("this host has left the rack".into());
        self.is_leaving().then(|| ImportError::PeerGone(left()))
    }

    /// The message of an import that is to be sent now, if it has not ended.
    pub(super) fn import_message(&mut self, now: Instant, number: u64) -> Option<Message> {
        let import = self.imports.pending.get_mut(&number)?;
        import.was_sent = true;
        // Rounded up, so that the owner does not answer before the time has come.
        let left = import.ends.saturating_duration_since(now);
        let millis = left.saturating_add(Duration::from_nanos(999_999)).as_millis();
        let timeout = u64::try_from(millis).unwrap_or(u64::MAX);
        Some(Message::Import { number, key: import.key, timeout })
    }

    /// `owner` has answered import `number`.
    pub(super) fn answered(
        &mut self,
        owner: HostId,
        number: u64,
        answer: Result<Answered<M>, Refusal>,
    ) -> Result<(), Violation> {
        let asked = |import: &Import<M>| import.owner == owner && import.was_sent;
        if !self.imports.pending.get(&number).is_some_and(asked) {
            return Err(Violation::new(format!("an answer to import {number}, which is not open")));
        }
        self.note_answer(owner);
        self.finish(number, answer)
    }

    /// This host has answered an import of its own.
    pub(super) fn answered_here(
        &mut self,
        number: u64,
        answer: Result<(Descriptor, M::Export), Refusal>,
    ) {
        let answer = answer.map(|(region, part)| (region, None, Some(part)));
        // Only the answer of a peer can be wrong.
        let _ = self.finish(number, answer);
    }

    /// An import is answered. If it has ended for this host before, the region is not used.
    fn finish(
        &mut self,
        number: u64,
        answer: Result<Answered<M>, Refusal>,
    ) -> Result<(), Violation> {
        let Some(Import { owner, key, requester, expires, .. }) =
            self.imports.pending.remove(&number)
        else {
            return Ok(());
        };
        self.timers.remove(&(expires, Timer::Import(number)));
        let Some(requester) = requester else { return Ok(()) };
        match answer {
            Ok((region, attachment, export)) => {
                if owner == self.config.local || self.config.reach == Reach::Direct {
                    self.imports.held.insert((owner, key, region.generation));
                }
                self.events.push_back(Output::Imported {
                    requester,
                    owner,
                    key,
                    region,
                    attachment,
                    export,
                });
                Ok(())
            }
            Err(refusal) => {
                let (error, is_wrong) = match refusal {
                    Refusal::Unknown => (ImportError::Unknown, false),
                    Refusal::Denied => (ImportError::Denied, false),
                    Refusal::Cancelled => (ImportError::Cancelled, true),
                };
                self.events.push_back(Output::ImportFailed { requester, owner, key, error });
                if is_wrong {
                    let text = format!("import {number} as cancelled, which is not");
                    return Err(Violation::new(text));
                }
                Ok(())
            }
        }
    }

    /// An import has waited long enough for its answer.
    pub(super) fn import_timed_out(&mut self, number: u64) {
        let is_local = |import: &Import<M>| import.owner == self.config.local;
        let local = self.imports.pending.get(&number).is_some_and(is_local);
        self.abandon(number, if local { ImportError::Unknown } else { ImportError::TimedOut });
    }

    /// Ends an import before it is answered. If its owner was asked, it gets a cancellation, and its
    /// answer is still expected.
    fn abandon(&mut self, number: u64, error: ImportError) {
        if !self.fail(number, error) {
            return;
        }
        let Some(import) = self.imports.pending.get(&number) else { return };
        let (owner, key, expires, was_sent) =
            (import.owner, import.key, import.expires, import.was_sent);
        self.timers.remove(&(expires, Timer::Import(number)));
        if was_sent {
            self.peer(owner).requests.push_back(Request::CancelImport(number));
            self.note_ready(owner);
            return;
        }
        self.imports.pending.remove(&number);
        if owner == self.config.local {
            self.exports.forget(key, owner, number);
        }
    }

    /// Reports that an import has failed; false if it had ended before.
    fn fail(&mut self, number: u64, error: ImportError) -> bool {
        let Some(import) = self.imports.pending.get_mut(&number) else { return false };
        let (owner, key) = (import.owner, import.key);
        let Some(requester) = import.requester.take() else { return false };
        self.events.push_back(Output::ImportFailed { requester, owner, key, error });
        true
    }

    /// `owner` has ended.
    pub(super) fn fail_imports_of(&mut self, owner: HostId, reason: &LossReason) {
        let all = self.imports.pending.iter().filter(|(_, import)| import.owner == owner);
        for number in all.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.fail(number, ImportError::PeerGone(reason.clone()));
            if let Some(import) = self.imports.pending.remove(&number) {
                self.timers.remove(&(import.expires, Timer::Import(number)));
                if owner == self.config.local {
                    self.exports.forget(import.key, owner, number);
                }
            }
        }
    }

    /// This host ends.
    pub(super) fn fail_local_imports(&mut self, reason: &LossReason) {
        self.fail_imports_of(self.config.local, reason);
    }

    /// There is no way to `owner` any more: it will revoke nothing.
    pub(super) fn forget_regions_of(&mut self, owner: HostId) {
        let of_owner = (owner, RegionKey(0), 0)..=(owner, RegionKey(u64::MAX), u32::MAX);
        let regions: Vec<_> = self.imports.held.range(of_owner).copied().collect();
        for region in regions {
            self.imports.held.remove(&region);
        }
        self.forget_inhibitions_of(owner);
    }
}

//! Revocation with quiescence. Where a region is mapped or served by a device, a check in front of
//! each operation is not enough: an importer may have checked and not yet copied. So the owner asks
//! every importer to stop, and each importer answers when none of its threads can be in the middle
//! of an operation any more.
//!
//! ```text
//!   owner                                    importer
//!   revoke: the key is free
//!   Revoke  ------------------------------>  Output::Inhibit { epoch }: marks the region as dead
//!                                            no thread is in an operation: quiesced(epoch)
//!           <------------------------------  Quiesced
//!   Output::Revoked: the memory is free
//! ```
//!
//! An importer that is gone answers nothing. If that cuts it off (`CutOff::AtEnd`), it counts as
//! quiet. Otherwise (`CutOff::AtStop`) it may use the region while its process runs: the revocation
//! waits until the transport says that it has [stopped](Control::stopped), for [`STOP_GRACE`], and
//! then names it as busy. The same holds for an importer that lives and does not answer, for
//! [`Config::revocation_timeout`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use transport_api::{HostId, RegionKey, deadline};

use crate::config::{Config, Medium, Reach, STOP_GRACE};
use crate::control::{Control, Request, Timer};
use crate::message::Message;
use crate::output::Output;
use crate::violation::Violation;

/// A revocation of this host.
struct Revocation<M: Medium> {
    key: RegionKey,
    generation: u32,
    /// The region, and what waits; `None` once the revocation was reported.
    open: Option<(M::Export, Option<M::Requester>)>,
    /// Hosts that have not quiesced; this host may be among them.
    users: BTreeSet<HostId>,
    /// When it ends whatever its users do.
    deadline: Option<Instant>,
    /// When it is looked at next: at the deadline, or earlier because of a peer that is silent.
    expires: Option<Instant>,
}

/// A region that threads of this host must stop using.
struct Inhibition {
    /// Its owner, and the number of the request there.
    owner: HostId,
    number: u64,
}

pub(super) struct Revocations<M: Medium> {
    /// By number. What has timed out is kept until all users have answered.
    pending: BTreeMap<u64, Revocation<M>>,
    /// By epoch.
    inhibitions: BTreeMap<u64, Inhibition>,
    /// The epoch of the last inhibition.
    epoch: u64,
    /// Whether some revocation may wait for a peer that has become silent.
    may_wait_for_silent: bool,
}

impl<M: Medium> Default for Revocations<M> {
    fn default() -> Self {
        let (pending, inhibitions) = (BTreeMap::new(), BTreeMap::new());
        Self { pending, inhibitions, epoch: 0, may_wait_for_silent: false }
    }
}

impl<M: Medium> Revocations<M> {
    /// A connection has ended.
    pub(super) fn note_silence(&mut self) {
        self.may_wait_for_silent = true;
    }

    /// Regions that threads of this host must stop using.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub(super) fn inhibited(&self) -> usize {
        self.inhibitions.len()
    }
}

/// For threads of the program and the service thread: revocation.
impl<M: Medium> Control<M> {
    /// Withdraws the region that this host exports under `key` (only `generation` of it, if given):
    /// it can be imported no more, and the key is free. [`Output::Revoked`] follows when no importer
    /// uses it any more. Returns the transport's part of it; `None`, and nothing follows, if it is not
    /// exported.
    pub fn revoke(
        &mut self,
        now: Instant,
        key: RegionKey,
        generation: Option<u32>,
        requester: Option<M::Requester>,
    ) -> Option<M::Export> {
        if !self.is_exported(key, generation) {
            return None;
        }
        let exported = self.exports.current.remove(&key)?;
        let (part, generation) = (exported.part, exported.generation);
        let number = self.next_number();
        let Config { local, cut_off, .. } = self.config;
        let is_direct = self.config.reach == Reach::Direct;
        let users = exported.users.into_iter();
        let users = users.filter(|user| {
            *user == local || is_direct && self.peers[user.0 as usize].may_use_regions(cut_off)
        });
        let users: BTreeSet<_> = users.collect();
        let deadline = self.config.revocation_timeout.map(|timeout| deadline(now, timeout));
        let expires = deadline;
        if let Some(expires) = expires {
            self.timers.insert((expires, Timer::Revocation(number)));
        }
        let open = Some((part.clone(), requester));
        let users_now = users.clone();
        let revocation = Revocation { key, generation, open, users: users_now, deadline, expires };
        self.revocations.pending.insert(number, revocation);
        self.revocations.note_silence();
        for user in users {
            if user == local {
                self.imports.held.remove(&(local, key, generation));
                self.inhibit(local, number, (key, generation));
            } else if !self.peer(user).is_silent() {
                self.peer(user).requests.push_back(Request::Revoke(number));
                self.note_ready(user);
            }
        }
        self.report_if_quiet(number);
        Some(part)
    }

    /// No thread of this host starts anything on the region of inhibition `epoch` any more, and
    /// nothing is under way on it. Where memory is mapped, the transport finds that out with
    /// [`QuietPoints`](transport_api::QuietPoints), whose token is the epoch; over a device it counts
    /// what it has started.
    pub fn quiesced(&mut self, epoch: u64) {
        let Some(Inhibition { owner, number }) = self.revocations.inhibitions.remove(&epoch) else {
            return;
        };
        if owner == self.config.local {
            self.user_quiesced(number, owner);
        } else {
            self.answer_quiesced(owner, number);
        }
    }
}

impl<M: Medium> Control<M> {
    /// Peer `owner` revokes a region that this host may have imported.
    pub(super) fn inhibit_for(
        &mut self,
        owner: HostId,
        number: u64,
        (key, generation): (RegionKey, u32),
    ) -> Result<(), Violation> {
        self.count_request(owner)?;
        if self.imports.held.remove(&(owner, key, generation)) {
            self.inhibit(owner, number, (key, generation));
        } else {
            self.answer_quiesced(owner, number);
        }
        Ok(())
    }

    fn inhibit(&mut self, owner: HostId, number: u64, (key, generation): (RegionKey, u32)) {
        self.revocations.epoch += 1;
        let epoch = self.revocations.epoch;
        self.revocations.inhibitions.insert(epoch, Inhibition { owner, number });
        self.events.push_back(Output::Inhibit { owner, key, generation, epoch });
    }

    fn answer_quiesced(&mut self, owner: HostId, number: u64) {
        let peer = self.peer(owner);
        if peer.is_open() {
            peer.answers.push_back((Message::Quiesced { number }, None));
            self.note_ready(owner);
        }
    }

    /// The message of a revocation that is to be sent now.
    pub(super) fn revoke_message(&self, number: u64) -> Option<Message> {
        let Revocation { key, generation, .. } = self.revocations.pending.get(&number)?;
        Some(Message::Revoke { number, key: *key, generation: *generation })
    }

    /// Peer `from` has quiesced.
    pub(super) fn quiesced_at(&mut self, from: HostId, number: u64) -> Result<(), Violation> {
        let users = self.revocations.pending.get(&number).map(|revocation| &revocation.users);
        if !users.is_some_and(|users| users.contains(&from)) {
            let text = format!("an answer to revocation {number}, which is not open");
            return Err(Violation::new(text));
        }
        self.note_answer(from);
        self.user_quiesced(number, from);
        Ok(())
    }

    /// `peer` has ended, and starts nothing more.
    pub(super) fn quiesced_everywhere(&mut self, peer: HostId) {
        for number in self.revocations.pending.keys().copied().collect::<Vec<_>>() {
            self.user_quiesced(number, peer);
        }
    }

    fn user_quiesced(&mut self, number: u64, user: HostId) {
        if let Some(revocation) = self.revocations.pending.get_mut(&number) {
            revocation.users.remove(&user);
            self.report_if_quiet(number);
        }
    }

    fn report_if_quiet(&mut self, number: u64) {
        let is_quiet = |revocation: &Revocation<M>| revocation.users.is_empty();
        if self.revocations.pending.get(&number).is_some_and(is_quiet) {
            self.report(number);
            self.forget_revocation(number);
        }
    }

    /// Reports a revocation, the first time: quiet if it has no users any more.
    fn report(&mut self, number: u64) {
        let Some(revocation) = self.revocations.pending.get_mut(&number) else { return };
        let (key, generation) = (revocation.key, revocation.generation);
        if let Some((export, requester)) = revocation.open.take() {
            let busy = revocation.users.iter().copied().collect();
            self.events.push_back(Output::Revoked { requester, key, generation, export, busy });
        }
    }

    pub(super) fn revocation_timed_out(&mut self, number: u64) {
        if !self.is_closed
            && let Some(revocation) = self.revocations.pending.get_mut(&number)
            && revocation.expires != revocation.deadline
        {
            let is_silent = |user: &HostId| self.peers[user.0 as usize].is_silent();
            if !revocation.users.iter().any(is_silent) {
                // The silent peer has stopped meanwhile. The others may take longer.
                revocation.expires = revocation.deadline;
                if let Some(deadline) = revocation.deadline {
                    self.timers.insert((deadline, Timer::Revocation(number)));
                }
                return;
            }
        }
        self.report(number);
        // No answer comes from those that are silent.
        let Some(revocation) = self.revocations.pending.get_mut(&number) else { return };
        revocation.expires = None;
        revocation.users.retain(|user| !self.peers[user.0 as usize].is_silent());
        if revocation.users.is_empty() {
            self.revocations.pending.remove(&number);
        }
    }

    /// Limits how long revocations wait for peers that answer nothing any more, and may run.
    pub(super) fn limit_waits(&mut self, now: Instant) {
        if !std::mem::take(&mut self.revocations.may_wait_for_silent) {
            return;
        }
        // Nothing watches peers once this host has ended.
        let grace = if self.is_closed { Duration::ZERO } else { STOP_GRACE };
        let expires = deadline(now, grace);
        for (number, revocation) in &mut self.revocations.pending {
            let is_silent = |user: &HostId| self.peers[user.0 as usize].is_silent();
            let is_earlier = revocation.expires.is_none_or(|before| expires < before);
            let is_limited = revocation.open.is_some() && is_earlier;
            if is_limited && revocation.users.iter().any(is_silent) {
                if let Some(before) = revocation.expires.replace(expires) {
                    self.timers.remove(&(before, Timer::Revocation(*number)));
                }
                self.timers.insert((expires, Timer::Revocation(*number)));
            }
        }
    }

    /// This host ends: no revocation waits for peers any more.
    pub(super) fn end_revocations(&mut self) {
        let local = self.config.local;
        for number in self.revocations.pending.keys().copied().collect::<Vec<_>>() {
            let of_peers =
                |revocation: &Revocation<M>| revocation.users.iter().any(|u| *u != local);
            if self.revocations.pending.get(&number).is_some_and(of_peers) {
                self.report(number);
                self.forget_revocation(number);
            }
        }
    }

    fn forget_revocation(&mut self, number: u64) {
        if let Some(Revocation { expires: Some(expires), .. }) =
            self.revocations.pending.remove(&number)
        {
            self.timers.remove(&(expires, Timer::Revocation(number)));
        }
    }

    /// There is no way to `owner` any more: it waits for no answer.
    pub(super) fn forget_inhibitions_of(&mut self, owner: HostId) {
        self.revocations.inhibitions.retain(|_, inhibition| inhibition.owner != owner);
    }
}

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

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use transport_api::{HostId, RegionKey, deadline};

use crate::config::{Medium, Reach};
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
}

impl<M: Medium> Default for Revocations<M> {
    fn default() -> Self {
        Self { pending: BTreeMap::new(), inhibitions: BTreeMap::new(), epoch: 0 }
    }
}

impl<M: Medium> Revocations<M> {
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
        let (local, is_direct) = (self.config.local, self.config.reach == Reach::Direct);
        let users = exported.users.into_iter();
        let users = users.filter(|user| {
            *user == local || is_direct && self.peers[user.0 as usize].may_use_regions()
        });
        let users: BTreeSet<_> = users.collect();
        let expires = self.config.revocation_timeout.map(|timeout| deadline(now, timeout));
        if let Some(expires) = expires {
            self.timers.insert((expires, Timer::Revocation(number)));
        }
        let open = Some((part.clone(), requester));
        let revocation = Revocation { key, generation, open, users: users.clone(), expires };
        self.revocations.pending.insert(number, revocation);
        for user in users {
            if user == local {
                self.imports.held.remove(&(local, key, generation));
                self.inhibit(local, number, (key, generation));
            } else {
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
            self.report(number, true);
            if let Some(Revocation { expires: Some(expires), .. }) =
                self.revocations.pending.remove(&number)
            {
                self.timers.remove(&(expires, Timer::Revocation(number)));
            }
        }
    }

    fn report(&mut self, number: u64, is_quiet: bool) {
        let Some(revocation) = self.revocations.pending.get_mut(&number) else { return };
        let (key, generation) = (revocation.key, revocation.generation);
        if let Some((export, requester)) = revocation.open.take() {
            let revoked = Output::Revoked { requester, key, generation, export, is_quiet };
            self.events.push_back(revoked);
        }
    }

    pub(super) fn revocation_timed_out(&mut self, number: u64) {
        self.report(number, false);
    }

    /// This host ends, and with it every wait.
    pub(super) fn end_revocations(&mut self) {
        self.revocations.inhibitions.clear();
        for number in self.revocations.pending.keys().copied().collect::<Vec<_>>() {
            self.report(number, false);
        }
        self.revocations.pending.clear();
    }

    /// There is no way to `owner` any more: it waits for no answer.
    pub(super) fn forget_inhibitions_of(&mut self, owner: HostId) {
        self.revocations.inhibitions.retain(|_, inhibition| inhibition.owner != owner);
    }
}

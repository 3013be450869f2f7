//! What this host exports, and the imports that wait for it: the owner's side of an import.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use primitive::limits::PENDING_REQUESTS;
use transport_api::{HostId, RegionError, RegionKey, deadline};

use crate::config::{Export, Medium};
use crate::control::{Control, Timer};
use crate::message::{Descriptor, Message, Refusal};
use crate::violation::Violation;

/// A region that this host exports.
pub(super) struct Exported<M: Medium> {
    pub(super) generation: u32,
    pub(super) part: M::Export,
    /// Hosts that were given it, this host perhaps among them.
    pub(super) users: BTreeSet<HostId>,
}

/// The generations of a key.
#[derive(Clone, Copy, Default)]
struct Generations {
    /// That of the next export.
    next: u32,
    /// The first of the memory that was exported last: later ones are of the same memory.
    first: u32,
}

pub(super) struct Exports<M: Medium> {
    pub(super) current: BTreeMap<RegionKey, Exported<M>>,
    /// Of each key that was ever exported. Never forgotten: a peer may still hold an import of any earlier
    /// export, which must not match a later one, and the notification of a write may arrive after the
    /// revocation ([`Control::was_exported`]). So layers above should reuse keys.
    generations: BTreeMap<RegionKey, Generations>,
    /// Imports that wait for a key: the importer, and the number of the request.
    pub(super) waiting: BTreeMap<RegionKey, BTreeSet<(HostId, u64)>>,
}

impl<M: Medium> Default for Exports<M> {
    fn default() -> Self {
        Self { current: BTreeMap::new(), generations: BTreeMap::new(), waiting: BTreeMap::new() }
    }
}

impl<M: Medium> Exports<M> {
    /// `from` no longer waits for `key`.
    pub(super) fn forget(&mut self, key: RegionKey, from: HostId, number: u64) {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.remove(&(from, number));
            if waiting.is_empty() {
                self.waiting.remove(&key);
            }
        }
    }
}

/// For threads of the program: exports.
impl<M: Medium> Control<M> {
    /// Exports a region under `key`, and answers the imports that wait for it. `part`, which is given
    /// the generation, makes the transport's part of it; it is short, as the caller may hold a lock.
    ///
    /// # Errors
    /// [`RegionError::KeyTaken`].
    pub fn export(
        &mut self,
        key: RegionKey,
        part: impl FnOnce(u32) -> M::Export,
    ) -> Result<u32, RegionError> {
        self.export_as(key, None, part)
    }

    /// As [`export`](Self::export), for memory that was exported before under the same key, with
    /// generation `first` at first.
    ///
    /// # Errors
    /// As [`export`](Self::export).
    pub fn reexport(
        &mut self,
        key: RegionKey,
        first: u32,
        part: impl FnOnce(u32) -> M::Export,
    ) -> Result<u32, RegionError> {
        self.export_as(key, Some(first), part)
    }

    fn export_as(
        &mut self,
        key: RegionKey,
        first: Option<u32>,
        part: impl FnOnce(u32) -> M::Export,
    ) -> Result<u32, RegionError> {
        if self.is_exported(key, None) {
            return Err(RegionError::KeyTaken(key));
        }
        let generations = self.exports.generations.entry(key).or_default();
        let generation = generations.next;
        let next = generation.wrapping_add(1);
        *generations = Generations { next, first: first.unwrap_or(generation) };
        let exported = Exported { generation, part: part(generation), users: BTreeSet::new() };
        self.exports.current.insert(key, exported);
        for (from, number) in self.exports.waiting.remove(&key).unwrap_or_default() {
            self.tell(from, number, key);
        }
        Ok(generation)
    }

    /// Whether this host exports `key`, and in this generation if one is given.
    pub fn is_exported(&self, key: RegionKey, generation: Option<u32>) -> bool {
        let exported = self.exports.current.get(&key);
        exported.is_some_and(|exported| generation.is_none_or(|g| g == exported.generation))
    }

    /// Whether `generation` of `key` is or was an export of the memory that this host exports, or
    /// exported last, under `key`.
    pub fn was_exported(&self, key: RegionKey, generation: u32) -> bool {
        let Some(Generations { next, first }) = self.exports.generations.get(&key) else {
            return false;
        };
        generation.wrapping_sub(*first) < next.wrapping_sub(*first)
    }

    /// The transport's part of the region that this host exports under `key`, and its generation.
    pub fn exported(&self, key: RegionKey) -> Option<(&M::Export, u32)> {
        self.exports.current.get(&key).map(|exported| (&exported.part, exported.generation))
    }
}

impl<M: Medium> Control<M> {
    /// Peer `from` asks for a region.
    pub(super) fn asked(
        &mut self,
        now: Instant,
        from: HostId,
        number: u64,
        (key, timeout): (RegionKey, u64),
    ) -> Result<(), Violation> {
        self.count_request(from)?;
        if self.peer(from).waiting.contains_key(&number) {
            return Err(Violation::new(format!("import {number} twice")));
        }
        let ends = deadline(now, Duration::from_millis(timeout));
        if self.exports.current.contains_key(&key) {
            self.tell(from, number, key);
        } else if timeout == 0 {
            self.refuse(from, number, Refusal::Unknown);
        } else {
            self.peer(from).waiting.insert(number, (key, ends));
            self.exports.waiting.entry(key).or_default().insert((from, number));
            self.timers.insert((ends, Timer::Waiting(from, number)));
        }
        Ok(())
    }

    /// Counts a request of `from` that is not answered.
    pub(super) fn count_request(&mut self, from: HostId) -> Result<(), Violation> {
        let peer = self.peer(from);
        if peer.unanswered >= PENDING_REQUESTS {
            let text = format!("more than {PENDING_REQUESTS} unanswered requests");
            return Err(Violation::new(text));
        }
        peer.unanswered += 1;
        Ok(())
    }

    /// Peer `from` no longer waits for its import.
    pub(super) fn ask_cancelled(&mut self, from: HostId, number: u64) {
        if self.forget_ask(from, number) {
            self.refuse(from, number, Refusal::Cancelled);
        }
    }

    /// An import of `from` has waited long enough.
    pub(super) fn waited_enough(&mut self, from: HostId, number: u64) {
        if self.forget_ask(from, number) {
            self.refuse(from, number, Refusal::Unknown);
        }
    }

    /// `from` has ended: nothing of it waits any more.
    pub(super) fn forget_asks_of(&mut self, from: HostId) {
        while let Some((&number, _)) = self.peer(from).waiting.first_key_value() {
            self.forget_ask(from, number);
        }
    }

    /// False if no such import waits.
    fn forget_ask(&mut self, from: HostId, number: u64) -> bool {
        let Some((key, ends)) = self.peer(from).waiting.remove(&number) else { return false };
        self.exports.forget(key, from, number);
        self.timers.remove(&(ends, Timer::Waiting(from, number)));
        true
    }

    /// What `importer` may know of region `key`, and records it as a user; `None` if the region is not
    /// exported.
    pub(super) fn describe(
        &mut self,
        importer: HostId,
        key: RegionKey,
    ) -> Option<Result<(Descriptor, M::Export), Refusal>> {
        let exported = self.exports.current.get_mut(&key)?;
        let Some(description) = exported.part.describe(importer) else {
            return Some(Err(Refusal::Denied));
        };
        exported.users.insert(importer);
        let generation = exported.generation;
        let (rights, len, opaque) = (description.rights, description.len, description.opaque);
        Some(Ok((Descriptor { generation, rights, len, opaque }, exported.part.clone())))
    }

    /// Answers an import of a region that is exported.
    pub(super) fn tell(&mut self, from: HostId, number: u64, key: RegionKey) {
        let Some(described) = self.describe(from, key) else { return };
        if from == self.config.local {
            self.answered_here(number, described);
            return;
        }
        if let Some((_, ends)) = self.peer(from).waiting.remove(&number) {
            self.timers.remove(&(ends, Timer::Waiting(from, number)));
        }
        match described {
            Ok((region, part)) => {
                let message = Message::Imported { number, region };
                self.peer(from).answers.push_back((message, Some(part)));
                self.note_ready(from);
            }
            Err(refusal) => self.refuse(from, number, refusal),
        }
    }

    fn refuse(&mut self, from: HostId, number: u64, refusal: Refusal) {
        self.peer(from).answers.push_back((Message::Refused { number, refusal }, None));
        self.note_ready(from);
    }
}

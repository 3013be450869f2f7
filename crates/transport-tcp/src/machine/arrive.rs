//! What arrives at a [`Machine`]: operations of the peer, which are carried out here, and answers
//! to this side's own.

use std::collections::VecDeque;
use std::sync::Arc;

use primitive::sync::Ordering;
use transport_api::{Event, HostId, OpError, RegionKey, Rights, Tag};
use transport_control::Violation;

use crate::export::Exported;
use crate::machine::asking::{ANSWER_WINDOW, Asked};
use crate::machine::{Machine, Name, Port, append};
use crate::wire::frame::{BODY_BYTES, Header, Kind, WORD, violation};

/// Regions that a connection remembers, so that most operations look nothing up.
const RECENT: usize = 8;

/// Revoked regions of which a connection remembers since when it has refused writes.
const REFUSED: usize = 64;

/// The regions that the last operations were on, the latest in front.
#[derive(Default)]
pub(super) struct RecentRegions(Vec<Arc<Exported>>);

impl RecentRegions {
    /// The region that an operation names, if it is exported.
    #[inline]
    fn find(&mut self, header: &Header, port: &mut impl Port) -> Option<&Exported> {
        if !self.0.first().is_some_and(|region| is_named(region, header)) {
            self.bring_forward(header, port)?;
        }
        self.0.first().map(|region| &**region)
    }

    /// Puts the region that an operation names in front, if it is exported.
    fn bring_forward(&mut self, header: &Header, port: &mut impl Port) -> Option<()> {
        match self.0.iter().position(|region| is_named(region, header)) {
            Some(place) => self.0[..=place].rotate_right(1),
            None => {
                let region = port.region(RegionKey(header.key))?;
                if !is_named(&region, header) {
                    return None;
                }
                self.0.truncate(RECENT - 1);
                self.0.insert(0, region);
            }
        }
        Some(())
    }
}

/// Whether the operation names this region, and it is still exported.
fn is_named(region: &Exported, header: &Header) -> bool {
    let is_it = region.key == RegionKey(header.key) && region.generation == header.generation;
    is_it && region.is_live()
}

/// Which writes of the peer were refused: to a region that was revoked, all from the first one on. Of
/// the regions that were revoked long ago this is forgotten.
#[derive(Default)]
pub(super) struct RefusedWrites(VecDeque<(Name, u64)>);

impl RefusedWrites {
    /// Write number `write`, to the region `to`, is refused.
    fn add(&mut self, to: Name, write: u64) {
        if self.0.iter().all(|(name, _)| *name != to) {
            self.0.truncate(REFUSED - 1);
            self.0.push_front((to, write));
        }
    }

    /// Whether write number `write`, to the region `to`, was refused.
    fn contain(&self, to: Name, write: u64) -> bool {
        self.0.iter().any(|(name, first)| *name == to && write >= *first)
    }
}

impl Machine {
    /// Takes the next bytes of the connection.
    ///
    /// # Errors
    /// A [`Violation`] if no peer of this build sends that; the connection cannot be used then.
    pub(crate) fn feed(&mut self, bytes: &[u8], port: &mut impl Port) -> Result<(), Violation> {
        let mut frames = std::mem::take(&mut self.frames);
        let fed = frames.feed(bytes, |header, body| self.take(header, body, port));
        self.frames = frames;
        fed
    }

    /// This host's `thread` has taken what it got over this connection and was charged `cost`.
    pub(crate) fn taken(&mut self, thread: u32, cost: u64) {
        self.inbound.taken(thread as u16, cost);
    }

    /// The region under `key` has been withdrawn.
    pub(crate) fn forget(&mut self, key: RegionKey) {
        self.recent.0.retain(|region| region.key != key);
    }

    fn take(&mut self, header: Header, body: &[u8], port: &mut impl Port) -> Result<(), Violation> {
        let Header { kind, thread, key, at, word, .. } = header;
        match kind {
            Kind::Write | Kind::Signal | Kind::Tagged | Kind::Read | Kind::Swap | Kind::Add => {
                self.carry_out(header, body, port)
            }
            Kind::Fence => self.fenced(),
            Kind::Value | Kind::Data | Kind::Revoked if kind != Kind::Revoked || word == 1 => {
                self.answered(header, body, port)
            }
            Kind::Revoked => {
                let error = revoked(&header);
                port.event(self.thread, Event::Failed { token: None, error });
                Ok(())
            }
            Kind::Wake => {
                port.wake(self.own(thread)?);
                Ok(())
            }
            Kind::Notify => {
                let to = self.own(thread)?;
                self.inbound.notified(thread)?;
                let value = u32::try_from(word).map_err(|_| violation!("the value {word}"))?;
                let numbers = |part: &[u8]| part.try_into().map(u64::from_le_bytes);
                let (len, write) = body.split_at(8.min(body.len()));
                let [len, write] = [len, write].map(|part| numbers(part).unwrap_or_default());
                let (from, key) = (self.peer, RegionKey(key));
                let name = Name { key, generation: header.generation };
                if let Some(region) = self.recent.find(&header, port) {
                    let count = usize::try_from(len).unwrap_or(usize::MAX);
                    Permit::check(&header, count, region, self.peer.host)?;
                } else if write > 0 && self.refused_writes.contain(name, write)
                    || !port.was_exported(name)
                {
                    // A refused write has been reported.
                    self.inbound.dropped_notification(thread);
                    return Ok(());
                }
                port.event(to, Event::Notified { from, key, at, len, value });
                Ok(())
            }
            Kind::BulkStart | Kind::BulkData => {
                let to = self.own(thread)?;
                let whole = match kind {
                    Kind::BulkStart => self.inbound.start(thread, key, word)?,
                    _ => self.inbound.more(thread, body)?,
                };
                if let Some((tag, payload)) = whole {
                    port.event(to, Event::Bulk { from: self.peer, tag: Tag(tag), payload });
                }
                Ok(())
            }
            Kind::Grant => {
                self.own(thread)?;
                self.outbound.granted(thread, word)
            }
            Kind::Goodbye if !self.heard_goodbye => {
                self.heard_goodbye = true;
                port.goodbye();
                Ok(())
            }
            _ => Err(violation!("{kind:?} on a connection of thread {}", self.thread)),
        }
    }

    /// A thread that a frame names.
    fn own(&self, thread: u16) -> Result<u32, Violation> {
        let thread = u32::from(thread);
        if thread < self.threads { Ok(thread) } else { Err(violation!("thread {thread}")) }
    }

    /// A peer that takes no answers must stop asking.
    fn check_answers(&self) -> Result<(), Violation> {
        if self.answers.len() > 2 * ANSWER_WINDOW {
            return Err(violation!("operations without end, and takes no answers"));
        }
        Ok(())
    }

    /// Answers a fence of the peer.
    fn fenced(&mut self) -> Result<(), Violation> {
        self.check_answers()?;
        let answer = match self.refused_peer.take() {
            None => Header::new(Kind::Value),
            Some(Name { key, generation }) => {
                Header { key: key.0, generation, word: 1, ..Header::new(Kind::Revoked) }
            }
        };
        answer.encode(0, &mut self.answers);
        Ok(())
    }

    /// Carries an operation of the peer out, and answers it.
    fn carry_out(
        &mut self,
        header: Header,
        body: &[u8],
        port: &mut impl Port,
    ) -> Result<(), Violation> {
        let waits = matches!(header.kind, Kind::Read | Kind::Swap | Kind::Add);
        self.writes_arrived += u64::from(header.kind == Kind::Write && header.word == 1);
        if waits {
            self.check_answers()?;
        }
        let Some(region) = self.recent.find(&header, port) else {
            let name = Name { key: RegionKey(header.key), generation: header.generation };
            self.refused_peer.get_or_insert(name);
            // Failures of operations without a token are not all reported: a fence reports that there
            // were any.
            let is_end = header.kind != Kind::Write || header.word == 1;
            if header.kind == Kind::Write {
                // Its end has been counted.
                let write = self.writes_arrived + u64::from(!is_end);
                self.refused_writes.add(name, write);
            }
            if waits || is_end && self.answers.len() < ANSWER_WINDOW {
                let revoked = Header { word: waits.into(), ..header };
                Header { kind: Kind::Revoked, ..revoked }.encode(0, &mut self.answers);
            }
            return Ok(());
        };
        let Permit { at, count } = Permit::check(&header, body.len(), region, self.peer.host)?;
        let memory = &region.memory;
        let old = match header.kind {
            Kind::Read => {
                Header::new(Kind::Data).encode(count, &mut self.answers);
                append(memory, at, count, &mut self.answers);
                return Ok(());
            }
            Kind::Swap => {
                let new = body.try_into().map(u64::from_le_bytes).unwrap_or_default();
                let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
                let swapped = memory.word(at).compare_exchange(header.word, new, success, failure);
                swapped.unwrap_or_else(|old| old)
            }
            Kind::Add => memory.word(at).fetch_add(header.word, Ordering::AcqRel),
            Kind::Signal | Kind::Tagged => {
                if !body.is_empty() {
                    memory.write_words(at + WORD, body);
                }
                memory.store(at, header.word, Ordering::Release);
                return Ok(());
            }
            _ => {
                memory.write_words(at, body);
                return Ok(());
            }
        };
        Header { word: old, ..Header::new(Kind::Value) }.encode(0, &mut self.answers);
        Ok(())
    }

    /// An answer to the operation that has waited longest.
    fn answered(
        &mut self,
        header: Header,
        body: &[u8],
        port: &mut impl Port,
    ) -> Result<(), Violation> {
        let Some(asked) = self.asking.take_answered() else {
            return Err(violation!("{:?} that answers nothing", header.kind));
        };
        let is_revoked = header.kind == Kind::Revoked;
        let refused = |token, Name { key, generation }| Event::Failed {
            token: Some(token),
            error: OpError::Revoked { key, generation },
        };
        let event = match (asked, header.kind) {
            (Asked::Fence { token }, Kind::Value) => Some(Event::Completed { token, value: 0 }),
            (Asked::Fence { token }, Kind::Revoked) => {
                let error = revoked(&header);
                Some(Event::Failed { token: Some(token), error })
            }
            (Asked::Value { token, name }, Kind::Revoked) => Some(refused(token, name)),
            (Asked::Value { token, .. }, Kind::Value) => {
                Some(Event::Completed { token, value: header.word })
            }
            (Asked::Part { token, name, into, at, len, total }, Kind::Data | Kind::Revoked)
                if is_revoked || body.len() == len =>
            {
                if !is_revoked {
                    into.write_words(at, body);
                }
                self.refused |= is_revoked;
                total.map(|total| match std::mem::take(&mut self.refused) {
                    true => refused(token, name),
                    false => Event::Completed { token, value: total as u64 },
                })
            }
            (_, kind) => return Err(violation!("{kind:?} for an answer of another kind")),
        };
        if let Some(event) = event {
            port.event(self.thread, event);
        }
        self.asking.release();
        Ok(())
    }
}

/// The refusal that a [`Kind::Revoked`] reports.
fn revoked(header: &Header) -> OpError {
    OpError::Revoked { key: RegionKey(header.key), generation: header.generation }
}

/// Where in a region an operation may be carried out.
struct Permit {
    at: usize,
    count: usize,
}

impl Permit {
    /// What a peer of this build checks before it asks. One that asks all the same has broken the
    /// protocol. `written` is what a write or the write in front of a notification has.
    fn check(
        header: &Header,
        written: usize,
        region: &Exported,
        peer: HostId,
    ) -> Result<Permit, Violation> {
        let (needs, count) = match header.kind {
            Kind::Write | Kind::Notify => (Rights::WRITE, written),
            // A word, and of a tagged write the bytes behind it; a signal has none.
            Kind::Signal | Kind::Tagged => (Rights::WRITE, WORD + written),
            Kind::Read => (Rights::READ, usize::try_from(header.word).unwrap_or(usize::MAX)),
            _ => (Rights::ATOMIC, 8),
        };
        let at = usize::try_from(header.at).unwrap_or(usize::MAX);
        let len = region.memory.len();
        let is_word = matches!(header.kind, Kind::Signal | Kind::Tagged | Kind::Swap | Kind::Add);
        let rights = region.access.of(peer);
        let allowed = rights.allow(needs)
            && count <= len
            && at <= len - count
            && (!is_word || at.is_multiple_of(8))
            && (header.kind != Kind::Read || count <= BODY_BYTES);
        allowed.then_some(Permit { at, count }).ok_or_else(|| {
            let Header { kind, key, .. } = header;
            violation!(
                "{kind:?} of {count} bytes at {at} of region {key} ({rights:?}, {len} bytes)"
            )
        })
    }
}

//! [`Requests`]: lookups with control transfer: a thread asks another host's clerk, whose thread
//! searches its table and answers (the second strategy of the paper's section 4.2).
//!
//! ```text
//!   LOOKUP   | number of the request | name ...
//!   FOUND    | number of the request | 128 bytes of the entry, or none if there is no such name
//! ```

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use fiber::FiberId;
use progress::{Progress, Violation};
use transport_api::{HostId, Namespace, OpError, Tag, ThreadId};

use crate::clerk::Clerk;
use crate::name::Name;
use crate::table::{ENTRY_BYTES, Entry, Slot};

/// The tag of a question.
const LOOKUP: Tag = Tag::new(Namespace::SEGMENTS, 1);
/// The tag of its answer.
const FOUND: Tag = Tag::new(Namespace::SEGMENTS, 2);

/// The most bytes of answers queued for a peer that does not take them.
const WAITING_BYTES: usize = 1 << 20;

/// How a request has ended.
pub(crate) type Answer = Result<Option<Entry>, HostId>;

struct Pending {
    host: HostId,
    name: Name,
    answer: Option<Answer>,
    fiber: Option<FiberId>,
}

/// The requests of one thread that are under way.
#[derive(Default)]
pub(crate) struct Requests {
    next: Cell<u64>,
    pending: RefCell<HashMap<u64, Pending>>,
}

impl Requests {
    /// Asks the clerk of `host`, at its thread `thread`.
    pub(crate) fn ask(
        &self,
        progress: &Progress,
        host: HostId,
        thread: u32,
        name: &Name,
    ) -> Result<Asked<'_>, OpError> {
        let number = self.next.get();
        self.next.set(number + 1);
        let mut payload = number.to_le_bytes().to_vec();
        payload.extend_from_slice(name.as_bytes());
        progress.start(host, |lane| lane.bulk(thread, LOOKUP, payload))?;
        let pending = Pending { host, name: *name, answer: None, fiber: None };
        self.pending.borrow_mut().insert(number, pending);
        Ok(Asked { requests: self, number })
    }

    /// A payload in the name space of segments has arrived.
    pub(crate) fn arrived(
        &self,
        clerk: &Clerk,
        progress: &Progress,
        from: ThreadId,
        tag: Tag,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let Some((number, rest)) = payload.split_first_chunk() else {
            return Err(Violation(format!("{} bytes as a lookup", payload.len())));
        };
        let number = u64::from_le_bytes(*number);
        match tag {
            LOOKUP => answer(clerk, progress, from, number, rest),
            FOUND => self.answered(from.host, number, rest),
            _ => Err(Violation(format!("a payload with the tag {tag:?}"))),
        }
    }

    fn answered(&self, from: HostId, number: u64, entry: &[u8]) -> Result<(), Violation> {
        let entry = match <&[u8; ENTRY_BYTES]>::try_from(entry) {
            Ok(bytes) => match Slot::decode_bytes(bytes) {
                Ok(Slot::Entry(entry)) => Some(entry),
                other => return Err(Violation(format!("{other:?} as a found name"))),
            },
            Err(_) if entry.is_empty() => None,
            Err(_) => return Err(Violation(format!("{} bytes as a found name", entry.len()))),
        };
        let mut pending = self.pending.borrow_mut();
        let Some(request) = pending.get_mut(&number) else {
            let is_old = number < self.next.get();
            // Its fiber may have been unwound.
            return if is_old { Ok(()) } else { Err(unasked(number)) };
        };
        if request.host != from || request.answer.is_some() {
            return Err(unasked(number));
        }
        if let Some(entry) = entry.filter(|entry| entry.name != request.name) {
            let (name, asked) = (entry.name, request.name);
            return Err(Violation(format!("\"{name}\" as a lookup of \"{asked}\"")));
        }
        request.answer = Some(Ok(entry));
        request.fiber.take().into_iter().for_each(fiber::unpark);
        Ok(())
    }

    pub(crate) fn peer_gone(&self, host: HostId) {
        for request in self.pending.borrow_mut().values_mut().filter(|r| r.host == host) {
            request.answer.get_or_insert(Err(host));
            request.fiber.take().into_iter().for_each(fiber::unpark);
        }
    }
}

/// A request under way. Dropping it forgets it: an answer that comes later is ignored.
pub(crate) struct Asked<'a> {
    requests: &'a Requests,
    number: u64,
}

impl Asked<'_> {
    /// Whether there is an answer to take.
    pub(crate) fn has_ended(&self) -> bool {
        let pending = self.requests.pending.borrow();
        pending.get(&self.number).is_none_or(|pending| pending.answer.is_some())
    }

    /// Takes the answer, or has `fiber` unparked when it is there.
    pub(crate) fn take(&self, fiber: Option<FiberId>) -> Option<Answer> {
        let mut pending = self.requests.pending.borrow_mut();
        let request = pending.get_mut(&self.number)?;
        request.fiber = fiber;
        request.answer.take()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.requests.pending.borrow_mut().remove(&self.number);
    }
}

/// Answers a request of `from`.
fn answer(
    clerk: &Clerk,
    progress: &Progress,
    from: ThreadId,
    number: u64,
    name: &[u8],
) -> Result<(), Violation> {
    let name = std::str::from_utf8(name).ok().and_then(|name| Name::new(name).ok());
    let name = name.ok_or_else(|| Violation("a lookup of an invalid name".into()))?;
    let mut payload = number.to_le_bytes().to_vec();
    if let Some(entry) = clerk.find(&name) {
        entry.encode().iter().for_each(|word| payload.extend_from_slice(&word.to_ne_bytes()));
    }
    progress.start(from.host, |lane| {
        if lane.waiting_bulk(Namespace::SEGMENTS) > WAITING_BYTES {
            return Err(Violation("lookups whose answers it does not take".into()));
        }
        // A peer that is gone needs no answer.
        let _ = lane.bulk(from.thread, FOUND, payload);
        Ok(())
    })
}

fn unasked(number: u64) -> Violation {
    Violation(format!("the answer to lookup {number}, which was not asked"))
}

//! Bulk payloads and notifications of one connection, both ways, and what bounds them.
//!
//! Between the connection's thread and each thread of the peer runs a *stream*. A receiver that
//! does not poll must neither be flooded nor hold up the others, so every stream has a window:
//! a payload may start while less than [`WINDOW`] is charged for earlier ones, is charged at most
//! the whole window, and is granted back when its receiver has taken it: with the next message that goes
//! there, or at once when it is a quarter of the window. So at most a window and
//! one payload of any stream are in the receiver's memory. The streams of a connection take turns,
//! one frame each, and so does everything else that is to be sent.

use std::collections::{BTreeMap, VecDeque};

use primitive::limits::MESSAGE_BYTES;
use transport_api::{Tag, Waiting};
use transport_control::Violation;

use crate::wire::frame::{BODY_BYTES, Header, Kind, violation};

/// What may be charged to a stream before it must wait, in bytes.
pub(crate) const WINDOW: u64 = 1 << 20;

/// What each payload and notification is charged besides its bytes, so that small ones are bounded in
/// number.
const OVERHEAD: u64 = 64;

/// Bytes for which memory is allocated before they arrive.
const AHEAD: usize = 1 << 20;

/// What a payload of `length` bytes is charged.
pub(crate) fn cost_of(length: usize) -> u64 {
    WINDOW.min(length as u64) + OVERHEAD
}

/// Something that waits to be sent on a stream.
enum Item {
    Payload {
        tag: u64,
        bytes: Vec<u8>,
    },
    Notify {
        header: Header,
        /// The length of what was written, and the number of the write.
        body: [u64; 2],
        /// How many operations that are held back must have been released before.
        behind: u64,
    },
}

/// What is to be sent to one thread of the peer.
struct Stream {
    thread: u16,
    queue: VecDeque<Item>,
    /// What is in the queue.
    waiting: Waiting,
    /// How much of the first payload has been sent, if it has been started.
    sent: Option<usize>,
    charged: u64,
}

impl Stream {
    /// Appends the next frame, if there is one that may be sent, `released` operations having been
    /// held back and released. What has gone waits no longer.
    fn advance(&mut self, out: &mut Vec<u8>, released: u64) -> bool {
        let (sent, thread) = (self.sent.take(), self.thread);
        let may_start = sent.is_some() || self.charged < WINDOW;
        let sent = match self.queue.front() {
            Some(Item::Payload { tag, bytes }) if may_start => match sent {
                None => {
                    self.charged += cost_of(bytes.len());
                    let word = bytes.len() as u64;
                    let header = Header { thread, key: *tag, word, ..Header::new(Kind::BulkStart) };
                    header.encode(0, out);
                    (!bytes.is_empty()).then_some(0)
                }
                Some(at) => {
                    let end = bytes.len().min(at + BODY_BYTES);
                    let header = Header { thread, ..Header::new(Kind::BulkData) };
                    header.encode_with(&bytes[at..end], out);
                    (end < bytes.len()).then_some(end)
                }
            },
            // It follows its data.
            Some(Item::Notify { header, body, behind }) if may_start && *behind <= released => {
                self.charged += OVERHEAD;
                header.encode_with(&body.map(u64::to_le_bytes).concat(), out);
                None
            }
            _ => return false,
        };
        self.sent = sent;
        if sent.is_none() {
            match self.queue.pop_front() {
                Some(Item::Payload { tag, bytes }) => {
                    self.waiting.remove_bulk(Tag(tag), bytes.len());
                }
                Some(Item::Notify { .. }) => self.waiting.remove_notification(),
                None => {}
            }
        }
        true
    }
}

/// The sending side.
#[derive(Default)]
pub(crate) struct Outbound {
    /// In the order of their turns.
    streams: VecDeque<Stream>,
    /// What is in the queues of all streams: mostly nothing, while streams stay once they were used.
    queued: usize,
}

impl Outbound {
    fn stream(&mut self, thread: u16) -> &mut Stream {
        let known = self.streams.iter().position(|stream| stream.thread == thread);
        let index = known.unwrap_or_else(|| {
            let (queue, waiting) = (VecDeque::new(), Waiting::default());
            self.streams.push_back(Stream { thread, queue, waiting, sent: None, charged: 0 });
            self.streams.len() - 1
        });
        &mut self.streams[index]
    }

    pub(crate) fn payload(&mut self, thread: u16, tag: u64, bytes: Vec<u8>) {
        self.queued += 1;
        let stream = self.stream(thread);
        stream.waiting.add_bulk(Tag(tag), bytes.len());
        stream.queue.push_back(Item::Payload { tag, bytes });
    }

    /// A notification, which waits until `behind` of the operations that are held back have been
    /// released; payloads on its stream wait with it, as they follow in their order.
    pub(crate) fn notify(&mut self, behind: u64, header: Header, body: [u64; 2]) {
        self.queued += 1;
        let stream = self.stream(header.thread);
        stream.waiting.add_notification();
        stream.queue.push_back(Item::Notify { header, body, behind });
    }

    /// The peer's `thread` has taken what was charged `cost`.
    pub(crate) fn granted(&mut self, thread: u16, cost: u64) -> Result<(), Violation> {
        let stream = self.stream(thread);
        let left = stream.charged.checked_sub(cost);
        stream.charged = left.ok_or_else(|| violation!("a grant of {cost} that nothing cost"))?;
        Ok(())
    }

    /// Appends frames, a turn for each stream, until `out` has `enough` bytes. Of the operations that
    /// were held back, `released` are among what has gone or is in `out`.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, enough: usize, released: u64) {
        let mut idle = 0;
        while self.queued > 0 && out.len() < enough && idle < self.streams.len() {
            let Some(mut stream) = self.streams.pop_front() else { return };
            let before = stream.queue.len();
            idle = if stream.advance(out, released) { 0 } else { idle + 1 };
            self.queued -= before - stream.queue.len();
            self.streams.push_back(stream);
        }
    }

    /// What waits to be sent, for each thread of the peer that anything was sent to.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u16, &Waiting)> {
        self.streams.iter().map(|stream| (stream.thread, &stream.waiting))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0
    }
}

/// A payload of which a part has arrived.
struct Assembly {
    tag: u64,
    length: usize,
    bytes: Vec<u8>,
}

/// The receiving side.
#[derive(Default)]
pub(crate) struct Inbound {
    assemblies: BTreeMap<u16, Assembly>,
    /// What is charged to each stream.
    charged: BTreeMap<u16, u64>,
    /// What the next frames grant.
    grants: BTreeMap<u16, u64>,
}

impl Inbound {
    /// A payload begins; returns it if that was all.
    pub(crate) fn start(
        &mut self,
        thread: u16,
        tag: u64,
        length: u64,
    ) -> Result<Option<(u64, Vec<u8>)>, Violation> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MESSAGE_BYTES {
            return Err(violation!("a payload of {length} bytes, above the limit"));
        }
        self.charge(thread, cost_of(length))?;
        if length == 0 {
            return Ok(Some((tag, Vec::new())));
        }
        let bytes = Vec::new();
        match self.assemblies.insert(thread, Assembly { tag, length, bytes }) {
            None => Ok(None),
            Some(_) => Err(violation!("a payload in the middle of another")),
        }
    }

    /// More of a payload; returns it if that was all.
    pub(crate) fn more(
        &mut self,
        thread: u16,
        body: &[u8],
    ) -> Result<Option<(u64, Vec<u8>)>, Violation> {
        let Some(Assembly { tag, length, bytes }) = self.assemblies.get_mut(&thread) else {
            return Err(violation!("more of a payload that has not begun"));
        };
        let missing = *length - bytes.len();
        if body.len() > missing {
            return Err(violation!("a payload that is longer than its {length} bytes"));
        }
        if bytes.capacity() - bytes.len() < body.len() {
            // In steps, so that a length alone allocates nothing.
            let step = missing.min(AHEAD.max(bytes.len()));
            let no_memory =
                |_| violation!("a payload of {length} bytes, for which memory is short");
            bytes.try_reserve_exact(step).map_err(no_memory)?;
        }
        bytes.extend_from_slice(body);
        if bytes.len() < *length {
            return Ok(None);
        }
        let whole = (*tag, std::mem::take(bytes));
        self.assemblies.remove(&thread);
        Ok(Some(whole))
    }

    /// A notification has arrived.
    pub(crate) fn notified(&mut self, thread: u16) -> Result<(), Violation> {
        self.charge(thread, OVERHEAD)
    }

    fn charge(&mut self, thread: u16, cost: u64) -> Result<(), Violation> {
        let charged = self.charged.entry(thread).or_default();
        if *charged >= WINDOW {
            return Err(violation!("more than the window of thread {thread} allows"));
        }
        *charged += cost;
        Ok(())
    }

    /// This host's `thread` has taken what was charged `cost`.
    pub(crate) fn taken(&mut self, thread: u16, cost: u64) {
        let charged = self.charged.entry(thread).or_default();
        *charged = charged.saturating_sub(cost);
        *self.grants.entry(thread).or_default() += cost;
    }

    /// A notification was not delivered, so no thread will take it.
    pub(crate) fn dropped_notification(&mut self, thread: u16) {
        self.taken(thread, OVERHEAD);
    }

    /// Whether a stream of the peer might soon wait for what is to be granted. One that waits is charged
    /// [`WINDOW`] or more, so once its receiver has taken all of that, this is true.
    pub(crate) fn owes_much(&self) -> bool {
        self.grants.values().any(|cost| *cost >= WINDOW / 4)
    }

    /// Appends what is to be granted.
    pub(crate) fn grant(&mut self, out: &mut Vec<u8>) {
        while let Some((thread, word)) = self.grants.pop_first() {
            Header { thread, word, ..Header::new(Kind::Grant) }.encode(0, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::Frames;

    fn exchange(out: &mut Outbound, into: &mut Inbound) -> Result<Vec<(u16, usize)>, Violation> {
        let (mut bytes, mut whole) = (Vec::new(), Vec::new());
        out.fill(&mut bytes, usize::MAX, 0);
        Frames::default().feed(&bytes, |header, body| {
            let thread = header.thread;
            let done = match header.kind {
                Kind::BulkStart => into.start(thread, header.key, header.word)?,
                _ => into.more(thread, body)?,
            };
            whole.extend(done.map(|(_, payload)| (thread, payload.len())));
            Ok(())
        })?;
        Ok(whole)
    }

    #[test]
    fn a_receiver_that_takes_nothing_is_sent_no_more_than_a_window() {
        let (mut out, mut into) = (Outbound::default(), Inbound::default());
        for _ in 0..40 {
            out.payload(1, 0, vec![0; 100 << 10]);
            out.payload(2, 0, Vec::new());
        }
        let first = exchange(&mut out, &mut into).expect("whole payloads");
        assert_eq!(first.iter().filter(|(thread, _)| *thread == 1).count(), 11);
        assert_eq!(first.iter().filter(|(thread, _)| *thread == 2).count(), 40, "not held up");
        assert_eq!(exchange(&mut out, &mut into), Ok(Vec::new()));
        into.taken(1, cost_of(100 << 10));
        out.granted(1, cost_of(100 << 10)).expect("a grant");
        assert_eq!(exchange(&mut out, &mut into), Ok(vec![(1, 100 << 10)]));
    }

    #[test]
    fn a_payload_larger_than_the_window_arrives_and_fills_it() {
        let (mut out, mut into) = (Outbound::default(), Inbound::default());
        out.payload(1, 0, vec![0; 5 << 20]);
        out.payload(1, 0, Vec::new());
        assert_eq!(exchange(&mut out, &mut into), Ok(vec![(1, 5 << 20)]));
        assert!(!out.is_empty());
        into.taken(1, cost_of(5 << 20));
        out.granted(1, cost_of(5 << 20)).expect("a grant");
        assert_eq!(exchange(&mut out, &mut into), Ok(vec![(1, 0)]));
        assert!(out.is_empty());
    }

    #[test]
    fn a_sender_that_ignores_the_window_is_refused() {
        let mut into = Inbound::default();
        let refused = (0..20_000).find_map(|_| into.start(3, 0, 0).err());
        assert!(refused.expect("a refusal").to_string().contains("window of thread 3"));
        let mut out = Outbound::default();
        assert!(out.granted(1, 1).is_err(), "nothing was charged");
    }

    #[test]
    fn claims_cost_nothing() {
        let mut into = Inbound::default();
        assert!(into.start(0, 0, MESSAGE_BYTES as u64 + 1).is_err());
        into.start(1, 0, MESSAGE_BYTES as u64).expect("a start");
        into.more(1, &[0; 10]).expect("more");
        assert!(into.assemblies[&1].bytes.capacity() <= AHEAD);
        assert!(into.more(2, &[0]).is_err(), "nothing has begun for thread 2");
        into.start(2, 0, 4).expect("a start");
        assert!(into.more(2, &[0; 5]).is_err(), "five bytes of four");
    }
}

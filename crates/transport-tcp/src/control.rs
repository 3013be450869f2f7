//! [`Control`]: the connection between two service threads: imports, signs of life, goodbyes.
//!
//! A peer is lost when its connection fails, or when it says nothing for too long. The two cover
//! each other: a machine that cannot be reached does not acknowledge our signs of life, which the
//! kernel notices after [half](UNACKNOWLEDGED) the bound, by timers that may be some hundred
//! milliseconds late; a machine that does, but whose process says nothing, is given the whole
//! bound, so that being stopped for less does no harm.

use crate::{
    export::Exports,
    frame::{Frames, Header, Kind, Nonsense, nonsense},
    wire::{Broken, Wire},
};
use primitive::limits::PENDING_IMPORTS;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};
use transport_api::{HostId, Importer, RegionKey, Rights, deadline};

/// Signs of life in the time of the loss bound.
pub(crate) const BEATS: u32 = 8;

/// Of [`BEATS`], how many a sign of life may stay unacknowledged by the peer's kernel.
pub(crate) const UNACKNOWLEDGED: u32 = 4;

/// Bytes that may wait for a peer to read them.
const UNREAD_BYTES: usize = 1 << 20;

/// A region as its owner describes it.
pub(crate) struct Described {
    pub(crate) rights: Rights,
    pub(crate) generation: u32,
    pub(crate) len: usize,
}

/// An import that the peer has answered: with a region, or that there is none.
pub(crate) struct Answered {
    pub(crate) key: RegionKey,
    pub(crate) importer: Importer,
    pub(crate) described: Option<Described>,
}

/// The control connection to one peer.
pub(crate) struct Control {
    pub(crate) peer: HostId,
    /// `None` once it is closed.
    wire: Option<Wire>,
    frames: Frames,
    out: Vec<u8>,
    /// What the epoll was last told of: whether there is room to wait for.
    waits_for_room: bool,
    /// When it last said anything. Before its first word it lies ahead, because a host may have
    /// joined while the peer still waits for others.
    pub(crate) heard: Instant,
    /// Imports that it has not answered yet, by number.
    asked: HashMap<u64, (RegionKey, Importer)>,
    /// Those that it has answered, for the service thread.
    answered: Vec<Answered>,
    /// Imports of its that wait for an export here: number, key, timeout.
    waiting: Vec<(u64, RegionKey, Instant)>,
    /// Why it has ended the connection, if it has said so.
    given_up: Option<String>,
    /// Whether it has been told that its goodbye was heard, and whether it has told us.
    pub(crate) told_heard: bool,
    pub(crate) has_heard: bool,
}

impl Control {
    /// The peer may take until `begins` to say its first word.
    pub(crate) fn new(peer: HostId, wire: Wire, begins: Instant) -> Self {
        Self {
            peer,
            wire: Some(wire),
            frames: Frames::default(),
            out: Vec::new(),
            waits_for_room: false,
            heard: begins,
            asked: HashMap::new(),
            answered: Vec::new(),
            waiting: Vec::new(),
            given_up: None,
            told_heard: false,
            has_heard: false,
        }
    }

    pub(crate) fn register(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        let Some(wire) = &self.wire else { return Ok(()) };
        Ok(epoll::add(epoll, wire, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Waits for room at the epoll, if something has none, and only then.
    pub(crate) fn watch(&mut self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        let Some(wire) = &self.wire else { return Ok(()) };
        let waits = !self.out.is_empty();
        if waits != self.waits_for_room {
            let room = if waits { EventFlags::OUT } else { EventFlags::empty() };
            epoll::modify(epoll, wire, EventData::new_u64(token), EventFlags::IN | room)?;
            self.waits_for_room = waits;
        }
        Ok(())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.wire.is_some()
    }

    /// Closes it. Whoever waits for an answer sees its channel close.
    pub(crate) fn close(&mut self) {
        self.wire = None;
        self.out.clear();
        self.asked.clear();
        self.waiting.clear();
    }

    fn post(&mut self, header: Header, body: &[u8]) {
        if self.wire.is_some() {
            header.encode_with(body, &mut self.out);
        }
    }

    pub(crate) fn ping(&mut self) {
        // One that waits already is sign enough.
        if self.out.is_empty() {
            self.post(Header::new(Kind::Ping), &[]);
        }
    }

    pub(crate) fn say_heard(&mut self) {
        self.told_heard = true;
        self.post(Header::new(Kind::Heard), &[]);
    }

    /// Tells the peer why the connection ends.
    pub(crate) fn give_up(&mut self, why: &str) {
        let why = &why.as_bytes()[..why.floor_char_boundary(1000)];
        self.post(Header::new(Kind::GivenUp), why);
    }

    /// Asks for a region; `number` is not in use.
    pub(crate) fn ask(
        &mut self,
        number: u64,
        key: RegionKey,
        timeout: Duration,
        importer: Importer,
    ) {
        let word = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        if self.wire.is_some() {
            self.asked.insert(number, (key, importer));
            self.post(Header { key: key.0, at: number, word, ..Header::new(Kind::Ask) }, &[]);
        }
    }

    /// Answers imports whose region is there now, or whose timeout has passed.
    pub(crate) fn answer_waiting(&mut self, exports: &Exports, now: Instant) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(number, key, deadline)| {
            let told = Header { at: *number, ..Header::new(Kind::Told) };
            match exports.get(*key) {
                Some(region) => {
                    let thread = region.access.of(self.peer).bits().into();
                    let (word, generation) = (region.memory.len() as u64, region.generation);
                    self.post(Header { key: 1, thread, word, generation, ..told }, &[]);
                    false
                }
                None if *deadline <= now => {
                    self.post(told, &[]);
                    false
                }
                None => true,
            }
        });
        self.waiting = waiting;
    }

    /// Takes the imports of this host that the peer has answered.
    pub(crate) fn take_answered(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answered)
    }

    /// When the timeout of the first import that waits passes.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|(_, _, deadline)| *deadline).min()
    }

    /// Reads once; true if anything came.
    pub(crate) fn receive(&mut self, now: Instant) -> Result<bool, Broken> {
        let Some(mut wire) = self.wire.take() else { return Ok(false) };
        let mut frames = std::mem::take(&mut self.frames);
        let received =
            wire.receive(|bytes| frames.feed(bytes, |header, body| self.take(header, body, now)));
        (self.wire, self.frames) = (Some(wire), frames);
        if let Some(why) = self.given_up.take() {
            return Err(Broken::Failed(why));
        }
        if matches!(received, Ok(true)) {
            self.heard = now;
        }
        received
    }

    fn take(&mut self, header: Header, body: &[u8], now: Instant) -> Result<(), Nonsense> {
        match header.kind {
            Kind::Ping => {}
            Kind::Ask => {
                if self.waiting.len() == PENDING_IMPORTS {
                    return Err(nonsense!("more than {PENDING_IMPORTS} unanswered imports"));
                }
                let deadline = deadline(now, Duration::from_millis(header.word));
                self.waiting.push((header.at, RegionKey(header.key), deadline));
            }
            Kind::Told => {
                let rights = u8::try_from(header.thread).ok().and_then(Rights::from_bits);
                let len = usize::try_from(header.word).ok();
                let (Some(rights), Some(len)) = (rights, len) else {
                    return Err(nonsense!("a region of {} bytes", header.word));
                };
                let generation = header.generation;
                // Nobody waits any more if the importer has timed out.
                if let Some((key, importer)) = self.asked.remove(&header.at) {
                    let described = Described { rights, generation, len };
                    let described = (header.key == 1).then_some(described);
                    self.answered.push(Answered { key, importer, described });
                }
            }
            Kind::Heard => self.has_heard = true,
            Kind::GivenUp => {
                let why = String::from_utf8_lossy(body);
                self.given_up = Some(why.escape_debug().to_string());
            }
            kind => return Err(nonsense!("{kind:?} on a control connection")),
        }
        Ok(())
    }

    /// Writes what waits, as far as there is room.
    pub(crate) fn push(&mut self) -> Result<(), Broken> {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        while wire.flush()? && !self.out.is_empty() {
            let count = wire.send(&self.out)?;
            if count == 0 {
                break;
            }
            self.out.drain(..count);
        }
        if self.out.len() > UNREAD_BYTES {
            return Err(Broken::Nonsense("question after question, and reads no answer".into()));
        }
        Ok(())
    }
}

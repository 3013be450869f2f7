//! Giving a buffer to the other side of a pair, on the lane that leads there.

use primitive::SharedBytes;
use primitive::sync::Ordering;
use progress::LaneRef;
use transport_api::park_word::PeerParkWord;
use transport_api::{Lane, OpError, RemoteRegion, ThreadId};

use crate::wire::slot::{Handover, start_of};
use crate::wire::words::Signal;

/// One side of a pair of threads: how what this side wrote becomes visible to the other.
pub struct Link {
    peer: ThreadId,
    remote: RemoteRegion,
    /// Where the pair's memory begins in the region.
    pair: usize,
    /// Where the client tells the trustee's compact poll which batch it sent last.
    arrival: Option<usize>,
    mapped: Option<SharedBytes>,
    /// Where a look at the peer shows that it need not be woken.
    park_word: Option<PeerParkWord>,
    /// Where the region is not mapped: whether the lane to it is a stream.
    is_stream: bool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("peer", &self.peer)
            .field("pair", &self.pair)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// The way to `peer`, whose memory for the pair begins at byte `pair` of `remote`; `arrival` is
    /// the byte of this client's arrival word there, if this side is a client and the trustee looks
    /// at those. `is_stream`: the lane there [is one](transport_api::Transport::streams).
    pub fn new(
        peer: ThreadId,
        remote: RemoteRegion,
        pair: usize,
        arrival: Option<usize>,
        is_stream: bool,
    ) -> Self {
        let mapped = remote.mapped().cloned();
        Self { peer, remote, pair, arrival, mapped, park_word: None, is_stream }
    }

    /// This, looking at the peer's [park word](Lane::park_word), if there is one.
    #[must_use]
    pub(crate) fn with_park_word(self, park_word: Option<PeerParkWord>) -> Self {
        Self { park_word, ..self }
    }

    /// Whether both sides use the same memory for the pair.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Whether each side has memory of its own for the pair, in which what the other writes has no
    /// order: a buffer has come when its checksum is right.
    pub fn is_checked(&self) -> bool {
        self.mapped.is_none() && !self.is_stream
    }

    /// The thread at the other end.
    pub(crate) fn peer(&self) -> ThreadId {
        self.peer
    }

    /// Gives the handover's buffer of `pair` (the memory that this side works in) to the other side
    /// and wakes it, on `lane` if that is needed.
    ///
    /// Where the transport maps the region, `pair` is the other side's own memory and the signal
    /// is one store; elsewhere everything travels in one message, with the wake, if one is due.
    ///
    /// A lane that is broken refuses, and reports a peer event.
    #[inline(always)]
    pub fn give<'a>(
        &self,
        pair: &SharedBytes,
        handover: Handover,
        lane: impl FnOnce() -> &'a LaneRef,
    ) {
        if let Some(region) = &self.mapped {
            pair.words().store(start_of(handover.buffer), handover.word, Ordering::Release);
            if let Some(at) = self.arrival {
                region.store(at, u64::from(handover.sequence), Ordering::Release);
            }
            if !self.park_word.as_ref().is_some_and(PeerParkWord::is_busy) {
                self.wake(lane());
            }
        } else {
            let Handover { buffer, end, word, .. } = handover;
            let _ = self.send(pair, buffer, end, word, &mut **lane().borrow_mut());
        }
    }

    #[inline(never)]
    fn wake(&self, lane: &LaneRef) {
        lane.borrow_mut().wake(self.peer.thread);
    }

    /// As [`give`](Self::give), where the region is not mapped. It takes the handover in parts: by its
    /// address, it would be in memory in `give`, too.
    fn send(
        &self,
        pair: &SharedBytes,
        buffer: usize,
        end: usize,
        word: u64,
        lane: &mut dyn Lane,
    ) -> Result<(), OpError> {
        let sequence = Signal::unpack(word).sequence;
        let handover = Handover { buffer, end, word, sequence, requests: 0 };
        if self.is_stream {
            let words = handover.words();
            let signal = (self.pair + handover.signal_at(), handover.word);
            let words = pair.slice(words.start, words.len());
            lane.write_tagged_memory(&self.remote, signal, &words)?;
        } else {
            let bytes = handover.in_one_write(pair);
            let written = pair.slice(bytes.start, bytes.len());
            lane.write(&self.remote, self.pair + bytes.start, &written)?;
        }
        if let Some(arrival) = self.arrival {
            lane.signal(&self.remote, arrival, u64::from(sequence))?;
        }
        // In front of the flush, so that if it is due it needs no message of its own.
        lane.wake(self.peer.thread);
        lane.flush()
    }
}

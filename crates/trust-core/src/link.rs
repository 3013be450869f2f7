//! Giving a buffer to the other side of a pair, on the lane that leads there.

use crate::slot::{Handover, start_of};
use crate::wire::WORD;
use primitive::{SharedBytes, sync::Ordering};
use transport_api::{Lane, OpError, RemoteRegion, ThreadId};

/// One side of a pair of threads: how what this side wrote becomes visible to the other.
pub(crate) struct Link {
    peer: ThreadId,
    remote: RemoteRegion,
    /// Where the pair's memory begins in the region.
    pair: usize,
    /// Where the client tells the trustee's compact poll which batch it sent last.
    arrival: Option<usize>,
    mapped: Option<SharedBytes>,
}

impl Link {
    pub(crate) fn new(
        peer: ThreadId,
        remote: RemoteRegion,
        pair: usize,
        arrival: Option<usize>,
    ) -> Self {
        let mapped = remote.mapped().cloned();
        Self { peer, remote, pair, arrival, mapped }
    }

    /// The thread at the other end.
    pub(crate) fn peer(&self) -> ThreadId {
        self.peer
    }

    /// Gives the handover's buffer of `pair` (the local copy of the pair's memory) to the other
    /// side and wakes it.
    ///
    /// Where the transport maps the region, `pair` is the other side's own memory and the signal
    /// is one store; elsewhere what was written travels ahead of it, and the wake with it.
    #[inline(always)]
    pub(crate) fn give(
        &self,
        pair: &SharedBytes,
        handover: Handover,
        lane: &mut dyn Lane,
    ) -> Result<(), OpError> {
        if let Some(region) = &self.mapped {
            pair.words().store(start_of(handover.buffer), handover.word, Ordering::Release);
            if let Some(at) = self.arrival {
                region.store(at, u64::from(handover.sequence), Ordering::Release);
            }
            lane.wake(self.peer.thread);
            Ok(())
        } else {
            self.send(pair, handover, lane)
        }
    }

    fn send(
        &self,
        pair: &SharedBytes,
        handover: Handover,
        lane: &mut dyn Lane,
    ) -> Result<(), OpError> {
        let start = start_of(handover.buffer);
        let at = self.pair + start * WORD;
        let written = pair.slice((start + 1) * WORD, (handover.end - 1) * WORD);
        lane.write(&self.remote, at + WORD, &written)?;
        lane.signal(&self.remote, at, handover.word)?;
        if let Some(arrival) = self.arrival {
            lane.signal(&self.remote, arrival, u64::from(handover.sequence))?;
        }
        // In front of the flush, so that it needs no message of its own.
        lane.wake(self.peer.thread);
        lane.flush()
    }
}

//! Giving a buffer to the other side of a pair, on the lane that leads there.

use crate::slot::Handover;
use crate::wire::WORD;
use primitive::{SharedBytes, sync::Ordering};
use transport_api::{Lane, OpError, RemoteRegion, ThreadId};

/// One side of a pair of threads: how what this side wrote becomes visible to the other.
pub(crate) struct Link {
    peer: ThreadId,
    remote: RemoteRegion,
    /// Where the pair's buffers begin in the region, one after the other.
    buffers: [usize; primitive::limits::BUFFERS],
    /// Where the client tells the trustee's compact poll which batch it sent last.
    arrival: Option<usize>,
    mapped: Option<SharedBytes>,
}

impl Link {
    pub(crate) fn new(
        peer: ThreadId,
        remote: RemoteRegion,
        buffers: [usize; primitive::limits::BUFFERS],
        arrival: Option<usize>,
    ) -> Self {
        let mapped = remote.mapped().cloned();
        Self { peer, remote, buffers, arrival, mapped }
    }

    /// The thread at the other end.
    pub(crate) fn peer(&self) -> ThreadId {
        self.peer
    }

    /// Gives `buffer` (the local copy of the handover's buffer) to the other side and wakes it.
    ///
    /// Where the transport maps the region, `buffer` is the other side's own memory and the signal
    /// is one store; elsewhere what was written travels ahead of it.
    #[inline(always)]
    pub(crate) fn give(
        &self,
        buffer: &SharedBytes,
        handover: Handover,
        lane: &mut dyn Lane,
    ) -> Result<(), OpError> {
        if let Some(region) = &self.mapped {
            buffer.store(0, handover.word, Ordering::Release);
            if let Some(at) = self.arrival {
                region.store(at, u64::from(handover.sequence), Ordering::Release);
            }
        } else {
            self.send(buffer, handover, lane)?;
        }
        lane.wake(self.peer.thread);
        Ok(())
    }

    fn send(
        &self,
        buffer: &SharedBytes,
        handover: Handover,
        lane: &mut dyn Lane,
    ) -> Result<(), OpError> {
        let at = self.buffers[handover.buffer];
        let written = buffer.slice(WORD, (handover.end - 1) * WORD);
        lane.write(&self.remote, at + WORD, &written)?;
        lane.signal(&self.remote, at, handover.word)?;
        if let Some(arrival) = self.arrival {
            lane.signal(&self.remote, arrival, u64::from(handover.sequence))?;
        }
        lane.flush()
    }
}

//! Operations over the lanes of an attached thread: writes, with flow control and notifications;
//! fences; reads and atomics, which wait.

use std::collections::VecDeque;

use primitive::SharedBytes;
use progress::Operation;
use transport_api::{HostId, OpError, RemoteRegion, Window};

use crate::engine::engine::Engine;
use crate::engine::flow_control::{OVERHEAD, PIECE};

/// The most reads of one block in flight.
const READS: usize = 8;

/// An operation on one word, which returns its old value.
#[derive(Clone, Copy)]
pub(crate) enum Atomic {
    /// If the word is `expected`, makes it `new`.
    CompareSwap { expected: u64, new: u64 },
    /// Adds `addend`, wrapping.
    FetchAdd { addend: u64 },
}

/// Writing.
impl Engine {
    /// The staging memory, of [`PIECE`] bytes.
    pub(super) fn staging(&self) -> &SharedBytes {
        self.staging.get_or_init(|| SharedBytes::heap(PIECE))
    }

    /// Writes at most [`PIECE`] bytes, which are in flight when this returns; `notify` is the
    /// thread of the owner to notify.
    #[track_caller]
    pub(crate) fn write(
        &self,
        to: &RemoteRegion,
        at: usize,
        bytes: &[u8],
        notify: Option<u32>,
    ) -> Result<(), OpError> {
        self.reserve(to, bytes.len(), notify)?;
        let staging = self.staging().slice(0, bytes.len());
        staging.write_from(0, bytes);
        self.write_reserved(to, at, &staging, notify)
    }

    /// As [`write`](Self::write), but sends any number of bytes straight from `from`, which must not change
    /// until this returns. The first piece goes last, with the notification: a receiver that looks at the
    /// first bytes finds the others there, or on their way. On an error, some bytes may have been written.
    #[track_caller]
    pub(crate) fn write_memory(
        &self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        notify: Option<u32>,
    ) -> Result<(), OpError> {
        for start in (PIECE..from.len()).step_by(PIECE) {
            let piece = from.slice(start, PIECE.min(from.len() - start));
            self.reserve(to, piece.len(), None)?;
            self.write_reserved(to, at + start, &piece, None)?;
        }
        let first = from.slice(0, PIECE.min(from.len()));
        self.reserve(to, first.len(), notify)?;
        self.write_reserved(to, at, &first, notify)
    }

    /// Writes bytes for which there is room; they may change once this has returned.
    fn write_reserved(
        &self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        notify: Option<u32>,
    ) -> Result<(), OpError> {
        let host = to.owner();
        let mut lane = self.progress.lane(host).borrow_mut();
        let started = match notify {
            None => lane.write(to, at, from),
            Some(thread) => lane.write_notify(to, at, from, thread, 0),
        };
        if started.is_err() {
            self.flow.take_back(host, from.len());
        }
        drop(lane);
        started?;
        self.progress.flush_lane(host)
    }

    /// Writes any number of bytes to memory that is mapped, and notifies `thread` of the owner. False, and
    /// nothing is done, if that is not possible at once. No fence covers it, and none needs to: it
    /// is done when this returns.
    #[inline]
    pub(crate) fn try_write_notify(
        &self,
        to: &RemoteRegion,
        at: usize,
        bytes: &[u8],
        thread: u32,
    ) -> bool {
        let (window, outbox) = (to.window(), self.progress.outbox(to.owner(), thread));
        matches!((window, outbox), (Some(window), Some(outbox)) if outbox.write_notify(window, at, bytes))
    }

    /// Writes at most [`PIECE`] bytes to memory that is mapped, and notifies `thread` of the owner.
    /// `is_written`: the bytes are there, and only the notification is missing; they are not written
    /// again, because others may have written to them since.
    #[track_caller]
    pub(crate) fn write_mapped(
        &self,
        (to, window): (&RemoteRegion, &Window),
        at: usize,
        bytes: &[u8],
        thread: u32,
        is_written: &mut bool,
    ) -> Result<(), OpError> {
        let host = to.owner();
        self.reserve(to, bytes.len(), Some(thread))?;
        let mut start = || {
            if !*is_written {
                window.write_from(at, bytes)?;
                *is_written = true;
            }
            let mut lane = self.progress.lane(host).borrow_mut();
            lane.write_notify(to, at, &self.nothing, thread, bytes.len() as u32)?;
            lane.flush()
        };
        let started = start();
        if started.is_err() {
            self.flow.take_back(host, bytes.len());
        }
        started
    }

    /// Stores `word` at `at`: a reader that sees it sees every earlier write of this thread to the host.
    #[track_caller]
    pub(crate) fn signal(&self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        let host = to.owner();
        self.reserve(to, size_of::<u64>(), None)?;
        let mut lane = self.progress.lane(host).borrow_mut();
        let started = lane.signal(to, at, word);
        drop(lane);
        if started.is_err() {
            self.flow.take_back(host, size_of::<u64>());
        }
        started?;
        self.progress.flush_lane(host)
    }

    /// As [`signal`](Self::signal), but the word leaves with the next flush, at the latest that of the next
    /// poll: for a word that is no message of its own.
    #[track_caller]
    pub(crate) fn signal_later(
        &self,
        to: &RemoteRegion,
        at: usize,
        word: u64,
    ) -> Result<(), OpError> {
        let host = to.owner();
        self.reserve(to, size_of::<u64>(), None)?;
        let started = self.progress.start(host, |lane| lane.signal(to, at, word));
        if started.is_err() {
            self.flow.take_back(host, size_of::<u64>());
        }
        started
    }

    /// Writes `parts`, one behind the other, behind the word at byte `at`, and then stores `tag` there: a
    /// reader that sees that sees all of them. Then notifies `notify`, a thread of the owner. The first
    /// [`PIECE`], the tag and the notification leave together, behind the rest. An error says that the tag
    /// was not written, unless the host is lost.
    #[track_caller]
    pub(crate) fn write_tagged(
        &self,
        to: &RemoteRegion,
        (at, tag): (usize, u64),
        parts: &[&[u8]],
        notify: Option<u32>,
    ) -> Result<(), OpError> {
        let (host, len) = (to.owner(), parts.iter().map(|part| part.len()).sum::<usize>());
        if len > PIECE {
            let all = parts.concat();
            let (first, behind) = all.split_at(PIECE);
            self.write_block(to, at + size_of::<u64>() + PIECE, behind)?;
            return self.write_tagged(to, (at, tag), &[first], notify);
        }
        let reserved = len + size_of::<u64>();
        self.reserve(to, reserved, notify)?;
        let mut lane = self.progress.lane(host).borrow_mut();
        let started = lane.write_tagged(to, (at, tag), parts, self.staging());
        if started.is_err() {
            self.flow.take_back(host, reserved);
        }
        started?;
        if let Some(thread) = notify {
            // A reader may see the tag from here on, so this must not say that nothing was written.
            // A notification is refused by a region that was just revoked, as a fence then reports, by a
            // thread that its own host has named wrongly, or by the loss of the host, as the flush reports.
            let _ = lane.write_notify(to, at, &self.nothing, thread, 0);
        }
        drop(lane);
        self.progress.flush_lane(host)
    }

    /// Writes any number of bytes.
    #[track_caller]
    pub(crate) fn write_block(
        &self,
        to: &RemoteRegion,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), OpError> {
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            self.write(to, at + number * PIECE, piece, None)?;
        }
        Ok(())
    }

    /// Notifies `thread` of the owner that `len` bytes at `at` have changed, after every earlier
    /// operation of this thread on the region.
    #[track_caller]
    pub(crate) fn announce(
        &self,
        on: &RemoteRegion,
        at: usize,
        len: u32,
        thread: u32,
    ) -> Result<(), OpError> {
        self.reserve(on, 0, Some(thread))?;
        let mut lane = self.progress.lane(on.owner()).borrow_mut();
        let started = lane.write_notify(on, at, &self.nothing, thread, len);
        if started.is_err() {
            self.flow.take_back(on.owner(), 0);
        }
        started?;
        lane.flush()
    }

    /// Notifies `thread` of the owner that an atomic has changed `len` bytes at `at`, also if the region
    /// has been revoked since. It does not wait: the caller has made room for it before the atomic.
    pub(crate) fn notify(
        &self,
        on: &RemoteRegion,
        at: usize,
        len: usize,
        thread: u32,
    ) -> Result<(), OpError> {
        let mut lane = self.progress.lane(on.owner()).borrow_mut();
        lane.notify(on, at, len, thread, 0)?;
        lane.flush()
    }

    /// Waits until there is room for the first [`PIECE`] of `bytes` bytes, and for a notification of
    /// `thread` of the owner of `on` behind them.
    ///
    /// # Panics
    /// If it would wait where that is impossible.
    #[track_caller]
    pub(crate) fn make_room(
        &self,
        on: &RemoteRegion,
        bytes: usize,
        thread: u32,
    ) -> Result<(), OpError> {
        let bytes = bytes.min(PIECE) + OVERHEAD;
        self.reserve(on, bytes, Some(thread))?;
        self.flow.take_back(on.owner(), bytes);
        Ok(())
    }

    pub(super) fn begin_fence(&self, host: HostId) -> Result<Operation, OpError> {
        self.progress.begin(host, |lane, token| lane.fence(token))
    }

    /// Waits until every earlier operation of this thread on segments of `host` has taken effect, and
    /// returns the first that was refused.
    #[track_caller]
    pub(crate) fn fence(&self, host: HostId) -> Result<(), OpError> {
        self.flow.fence(host, || self.begin_fence(host), |fence| self.wait(fence))
    }

    /// A region of `host` was imported again, because the owner had refused an operation that is
    /// repeated. The next fence would report that refusal. Unless a write is in flight, which might
    /// have been refused as well, this consumes that report.
    #[track_caller]
    pub(crate) fn forget_refusals(&self, host: HostId) {
        if self.flow.is_clean(host) {
            // Not `fence`, which would also consume what fences of other fibers have found meanwhile. This
            // drops only what this fence reports, and the loss of the host, which every operation reports.
            let begin = || self.begin_fence(host);
            let _ = self.flow.peek_refusal(host, |_| true, begin, |fence| self.wait(fence));
        }
    }
}

/// Reading, and operations on one word.
impl Engine {
    /// Begins to read at most [`PIECE`] bytes. The lane keeps the memory until the read has ended.
    pub(crate) fn begin_read(
        &self,
        from: &RemoteRegion,
        at: usize,
        len: usize,
    ) -> Result<(Operation, SharedBytes), OpError> {
        let into = SharedBytes::heap(len.max(8)).slice(0, len);
        let read =
            self.progress.begin(from.owner(), |lane, token| lane.read(from, at, &into, token))?;
        Ok((read, into))
    }

    /// Reads any number of bytes into `out`, several pieces at a time.
    #[track_caller]
    pub(crate) fn read_block(
        &self,
        from: &RemoteRegion,
        at: usize,
        out: &mut [u8],
    ) -> Result<(), OpError> {
        let mut under_way = VecDeque::with_capacity(READS);
        let mut pieces = out.chunks_mut(PIECE).enumerate();
        loop {
            while under_way.len() < READS
                && let Some((number, piece)) = pieces.next()
            {
                let (read, bytes) = self.begin_read(from, at + number * PIECE, piece.len())?;
                under_way.push_back((read, bytes, piece));
            }
            let Some((read, bytes, piece)) = under_way.pop_front() else { return Ok(()) };
            self.wait(read)?;
            bytes.read_into(0, piece);
        }
    }

    /// An operation on the word at `at`; its old value. Where memory is not mapped, or a device
    /// carries out those of others, it waits.
    ///
    /// # Panics
    /// Before anything is done, if it would wait where that is impossible.
    #[track_caller]
    pub(crate) fn atomic(
        &self,
        on: &RemoteRegion,
        at: usize,
        atomic: Atomic,
    ) -> Result<u64, OpError> {
        if let Some(window) = on.window()
            && self.shared.transport.maps_atomics(on.owner())
        {
            return match atomic {
                Atomic::CompareSwap { expected, new } => window.compare_swap(at, expected, new),
                Atomic::FetchAdd { addend } => window.fetch_add(at, addend),
            };
        }
        self.check_may_wait("an operation on a word");
        let begun = self.progress.begin(on.owner(), |lane, token| match atomic {
            Atomic::CompareSwap { expected, new } => {
                lane.compare_swap(on, at, expected, new, token)
            }
            Atomic::FetchAdd { addend } => lane.fetch_add(on, at, addend, token),
        });
        self.wait(begun?)
    }
}

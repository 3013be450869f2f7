//! [`FlowControl`]: the bytes of writes that each lane of a thread may have in flight.
//!
//! A write is not acknowledged, and a lane queues what its peer does not take. So a thread begins a
//! fence after every [`WINDOW`] bytes, and never has more than [`LIMIT`] bytes in flight that no
//! completed fence covers: a write that would exceed it waits for the oldest fence.
//!
//! ```text
//!   0 ........ done ............ fenced ......... begun      (bytes since the lane was opened)
//!     arrived   |  a fence is in flight  |  none yet  |
//!               |<------------ at most LIMIT -------->|
//! ```
//!
//! All fibers of a thread share its lanes. One of the waiting fibers waits for the fence, and the
//! others wait for that fiber.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;

use fiber::FiberId;
use progress::Operation;
use transport_api::{HostId, LossReason, OpError};

/// The most bytes of one operation: larger ones are split.
pub(crate) const PIECE: usize = 64 << 10;

/// Approximate bytes that a lane keeps for each write besides its data. It limits writes without
/// data, which only notify, as well.
pub(super) const OVERHEAD: usize = 64;

/// Bytes after which a fence is begun.
const WINDOW: u64 = 256 << 10;

/// The most bytes in flight.
const LIMIT: u64 = 2 * WINDOW;

#[derive(Default)]
struct LaneFlow {
    /// Bytes of all writes.
    begun: Cell<u64>,
    /// Those before the last fence that has begun.
    fenced: Cell<u64>,
    /// Those before a fence that has ended.
    done: Cell<u64>,
    /// Fences without a waiter yet, each with the bytes begun before it.
    fences: RefCell<VecDeque<(u64, Operation)>>,
    /// Whether a fiber waits for the oldest fence; `waiters` wait for that fiber.
    is_waited: Cell<bool>,
    waiters: RefCell<Vec<FiberId>>,
    /// The first operation that a fence of ours has found refused.
    refused: RefCell<Option<OpError>>,
}

/// Held by the fiber that waits for the oldest fence; its drop wakes the others.
struct Turn<'a>(&'a LaneFlow);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_waited.set(false);
        self.0.waiters.take().into_iter().for_each(fiber::unpark);
    }
}

impl LaneFlow {
    fn has_room(&self, cost: u64) -> bool {
        self.begun.get() + cost <= self.done.get() + LIMIT
    }

    /// Whether there is room once fences that have ended are taken.
    #[cold]
    fn would_have_room(&self, cost: u64) -> bool {
        let fences = self.fences.borrow();
        let ended = fences.iter().rev().find(|(_, fence)| fence.has_ended());
        ended.is_some_and(|(mark, _)| self.begun.get() + cost <= mark + LIMIT)
    }

    fn note_done(&self, mark: u64) {
        self.done.set(mark.max(self.done.get()));
    }

    /// Keeps a refusal that a fence has reported for the next fence of a caller; returns the loss of
    /// the peer at once.
    fn note(&self, mark: u64, ended: Result<u64, OpError>) -> Result<(), OpError> {
        self.note_done(mark);
        match ended {
            Ok(_) => Ok(()),
            Err(lost @ OpError::PeerLost(..)) => Err(lost),
            Err(error) => {
                self.refused.borrow_mut().get_or_insert(error);
                Ok(())
            }
        }
    }

    /// The oldest fence without a waiter, if `is_wanted`.
    fn take_fence(&self, is_wanted: impl FnOnce(&Operation) -> bool) -> Option<(u64, Operation)> {
        let mut fences = self.fences.borrow_mut();
        let is_wanted = fences.front().is_some_and(|(_, fence)| is_wanted(fence));
        if is_wanted { fences.pop_front() } else { None }
    }

    fn begin(
        &self,
        begin: impl Fn() -> Result<Operation, OpError>,
    ) -> Result<(u64, Operation), OpError> {
        let mark = self.begun.get();
        let fence = begin()?;
        self.fenced.set(mark);
        Ok((mark, fence))
    }
}

fn cost(bytes: usize) -> u64 {
    (bytes + OVERHEAD) as u64
}

/// By host.
pub(super) struct FlowControl(Box<[LaneFlow]>);

impl FlowControl {
    pub(super) fn new(hosts: u32) -> Self {
        Self((0..hosts).map(|_| LaneFlow::default()).collect())
    }

    fn of(&self, host: HostId) -> &LaneFlow {
        &self.0[host.0 as usize]
    }

    /// Counts a write of at most [`PIECE`] bytes to `host`, which the caller then begins. `begin`
    /// begins a fence, `wait` waits for one.
    #[track_caller]
    pub(super) fn reserve(
        &self,
        host: HostId,
        bytes: usize,
        begin: impl Fn() -> Result<Operation, OpError>,
        wait: impl Fn(Operation) -> Result<u64, OpError>,
    ) -> Result<(), OpError> {
        let (lane, place) = (self.of(host), Location::caller());
        loop {
            while let Some((mark, ended)) = lane.take_fence(Operation::has_ended) {
                lane.note(mark, wait(ended))?;
            }
            if lane.has_room(cost(bytes)) {
                break;
            }
            if lane.is_waited.get() {
                Self::wait_for_turn(lane, host, place)?;
                continue;
            }
            let oldest = lane.take_fence(|_| true);
            let (mark, fence) = oldest.map_or_else(|| lane.begin(&begin), Ok)?;
            lane.is_waited.set(true);
            let _turn = Turn(lane);
            lane.note(mark, wait(fence))?;
        }
        if lane.begun.get() - lane.fenced.get() >= WINDOW {
            let fence = lane.begin(&begin)?;
            lane.fences.borrow_mut().push_back(fence);
        }
        lane.begun.set(lane.begun.get() + cost(bytes));
        Ok(())
    }

    /// Parks the fiber until the one that waits for a fence has ended its wait.
    #[track_caller]
    fn wait_for_turn(
        lane: &LaneFlow,
        host: HostId,
        place: &'static Location<'static>,
    ) -> Result<(), OpError> {
        fiber::check_may_wait("a write", place);
        // A thread without fibers has one operation at a time, so no other one of its own waits.
        lane.waiters.borrow_mut().extend(fiber::current());
        if fiber::park_or_give_up() || !lane.is_waited.get() {
            return Ok(());
        }
        Err(OpError::PeerLost(host, LossReason::Connection("the rack has ended".into())))
    }

    /// A write of `bytes` was not begun after all.
    pub(super) fn take_back(&self, host: HostId, bytes: usize) {
        let begun = &self.of(host).begun;
        begun.set(begun.get() - cost(bytes));
    }

    /// Whether no write to `host` is in flight, and no refusal waits to be reported.
    pub(super) fn is_clean(&self, host: HostId) -> bool {
        let lane = self.of(host);
        lane.begun.get() == lane.done.get() && lane.refused.borrow().is_none()
    }

    /// Whether [`reserve`](Self::reserve) would not wait for `bytes`, in writes of [`PIECE`] bytes.
    pub(super) fn has_room(&self, host: HostId, bytes: usize) -> bool {
        let overhead = OVERHEAD.saturating_mul(bytes / PIECE + 1);
        let cost = cost(bytes.saturating_add(overhead).min(isize::MAX as usize));
        let lane = self.of(host);
        lane.has_room(cost) || lane.would_have_room(cost)
    }

    /// Waits as [`fence`](Self::fence) does, and returns a refusal. It is also kept for the next fence of
    /// a caller, unless it `is_own`: the refusal of an operation that no program began.
    pub(super) fn peek_refusal(
        &self,
        host: HostId,
        is_own: impl FnOnce(&OpError) -> bool,
        begin: impl Fn() -> Result<Operation, OpError>,
        wait: impl Fn(Operation) -> Result<u64, OpError>,
    ) -> Result<Option<OpError>, OpError> {
        let lane = self.of(host);
        let (mark, fence) = lane.begin(begin)?;
        let ended = wait(fence);
        let refused = ended.as_ref().err().cloned();
        if refused.as_ref().is_some_and(is_own) {
            lane.note_done(mark);
        } else {
            lane.note(mark, ended)?;
        }
        Ok(refused)
    }

    /// Waits until everything has taken effect that was begun before; returns the first operation that
    /// was refused since this returned last.
    pub(super) fn fence(
        &self,
        host: HostId,
        begin: impl Fn() -> Result<Operation, OpError>,
        wait: impl Fn(Operation) -> Result<u64, OpError>,
    ) -> Result<(), OpError> {
        let lane = self.of(host);
        let (last, fence) = lane.begin(begin)?;
        // They end before this one. Another fiber that waits for one of them has noted it by then.
        while let Some((mark, before)) = lane.take_fence(|_| true) {
            lane.note(mark, wait(before))?;
        }
        let ended = wait(fence);
        lane.note_done(last);
        let refused = lane.refused.take().map_or(Ok(()), Err);
        refused.and(ended.map(drop))
    }
}

//! [`Windows`]: how much each lane of a thread may have under way without an answer.
//!
//! A write is not acknowledged, and a lane queues what its peer does not take. So after
//! [`WINDOW`] bytes a thread begins a fence, and before the bytes of another window it waits for it:
//! no lane holds more than two windows.

use std::cell::{Cell, RefCell};

use progress::Operation;
use transport_api::{HostId, OpError};

/// Bytes of one operation, at most: larger ones are cut.
pub(crate) const PIECE: usize = 64 << 10;

/// What a lane keeps of each write besides its bytes, about: so writes without bytes, which only
/// notify, do not pile up either.
const OVERHEAD: usize = 64;

/// Bytes after which a fence is begun.
pub(super) const WINDOW: usize = 256 << 10;

#[derive(Default)]
struct Window {
    /// Bytes written since the last fence began.
    unfenced: Cell<usize>,
    /// The fence of the window before.
    fence: RefCell<Option<Operation>>,
    /// The first operation that a fence of ours has found refused.
    refused: RefCell<Option<OpError>>,
}

/// By host.
pub(super) struct Windows(Box<[Window]>);

impl Windows {
    pub(super) fn new(hosts: u32) -> Self {
        Self((0..hosts).map(|_| Window::default()).collect())
    }

    /// Counts `bytes` to be written to `host`. If its window is full, `begin` begins a fence, after
    /// `wait` has waited for the one before.
    pub(super) fn reserve(
        &self,
        host: HostId,
        bytes: usize,
        begin: impl FnOnce() -> Result<Operation, OpError>,
        wait: impl FnOnce(Operation) -> Result<u64, OpError>,
    ) -> Result<(), OpError> {
        let window = &self.0[host.0 as usize];
        window.unfenced.set(window.unfenced.get() + bytes + OVERHEAD);
        if window.unfenced.get() < WINDOW {
            return Ok(());
        }
        window.unfenced.set(0);
        let before = window.fence.take();
        let fence = begin()?;
        *window.fence.borrow_mut() = Some(fence);
        if let Some(before) = before {
            self.note(host, wait(before))?;
        }
        Ok(())
    }

    /// Whether nothing was written to `host` since the last fence that a caller has waited for.
    pub(super) fn is_clean(&self, host: HostId) -> bool {
        let window = &self.0[host.0 as usize];
        window.unfenced.get() == 0
            && window.fence.borrow().is_none()
            && window.refused.borrow().is_none()
    }

    /// Whether [`reserve`](Self::reserve) would not wait for `bytes`, in writes of any size.
    pub(super) fn has_room(&self, host: HostId, bytes: usize) -> bool {
        let window = &self.0[host.0 as usize];
        let overhead = OVERHEAD * (bytes / PIECE + 2);
        let bytes = window.unfenced.get().saturating_add(bytes).saturating_add(overhead);
        let is_free = || window.fence.borrow().as_ref().is_none_or(Operation::has_ended);
        // The fence of a second window would wait for that of the first, which begins now.
        bytes < WINDOW || (bytes < 2 * WINDOW && is_free())
    }

    /// A write of `bytes` was not begun after all.
    pub(super) fn take_back(&self, host: HostId, bytes: usize) {
        let unfenced = &self.0[host.0 as usize].unfenced;
        // A fence may have begun meanwhile.
        unfenced.set(unfenced.get().saturating_sub(bytes + OVERHEAD));
    }

    /// Keeps what a fence has found refused for [`take_refused`](Self::take_refused); the loss of the
    /// peer is returned at once.
    fn note(&self, host: HostId, ended: Result<u64, OpError>) -> Result<(), OpError> {
        match ended {
            Ok(_) => Ok(()),
            Err(lost @ OpError::PeerLost(..)) => Err(lost),
            Err(error) => {
                self.0[host.0 as usize].refused.borrow_mut().get_or_insert(error);
                Ok(())
            }
        }
    }

    /// The fence that is under way, for a thread that waits for everything.
    pub(super) fn take_fence(&self, host: HostId) -> Option<Operation> {
        let window = &self.0[host.0 as usize];
        window.unfenced.set(0);
        window.fence.take()
    }

    /// The first operation that was refused since this was asked last.
    pub(super) fn take_refused(&self, host: HostId) -> Option<OpError> {
        self.0[host.0 as usize].refused.take()
    }
}

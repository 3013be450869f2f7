//! [`Epochs`]: how runtime threads tell that they have passed a poll since a region was inhibited.
//!
//! ```text
//!   service thread                             runtime thread, between two operations
//!   mark the region as dead                    pass: takes over the published epoch
//!   publish(epoch)                             away, back: around a sleep
//!   passed(thread): at least the epoch?        ... before each operation: is the region dead?
//! ```
//!
//! A thread that has taken an epoch over sees every mark that was made before the epoch was
//! published. A thread that is away does nothing; when it is back, either the service thread sees
//! that it is, or it sees the marks (a fence on both sides).

use primitive::{
    CachePadded,
    sync::{AtomicU64, Ordering, fence},
};

/// What a thread that is away has in place of an epoch.
const AWAY: u64 = u64::MAX;

/// Which epoch each runtime thread of a host has passed. All threads begin away.
///
/// ```
/// use gossamer_transport_control::Epochs;
///
/// let epochs = Epochs::new(2);
/// epochs.back(0);
/// epochs.publish(7);
/// assert_eq!(epochs.passed(0), 0, "it may be in the middle of an operation");
/// assert_eq!(epochs.passed(1), 7, "it is away");
/// epochs.pass(0);
/// assert_eq!(epochs.passed(0), 7);
/// ```
pub struct Epochs {
    published: CachePadded<AtomicU64>,
    /// By thread. Only the thread itself writes it.
    threads: Vec<CachePadded<AtomicU64>>,
}

impl Epochs {
    /// Of a host with so many threads.
    pub fn new(threads: u32) -> Self {
        let threads = (0..threads).map(|_| CachePadded::new(AtomicU64::new(AWAY))).collect();
        Self { published: CachePadded::new(AtomicU64::new(0)), threads }
    }

    /// For the service thread: regions of inhibitions up to `epoch` are marked as dead.
    pub fn publish(&self, epoch: u64) {
        self.published.store(epoch, Ordering::Release);
        // A thread that comes back sees the marks, or is seen here by `passed`.
        fence(Ordering::SeqCst);
    }

    /// For the service thread: the last published epoch that `thread` has passed.
    pub fn passed(&self, thread: u32) -> u64 {
        match self.threads[thread as usize].load(Ordering::Acquire) {
            AWAY => self.published.load(Ordering::Relaxed),
            epoch => epoch,
        }
    }

    /// For `thread`, in the middle of no operation: at each poll.
    #[inline]
    pub fn pass(&self, thread: u32) {
        let published = self.published.load(Ordering::Acquire);
        let own = &self.threads[thread as usize];
        if own.load(Ordering::Relaxed) != published {
            own.store(published, Ordering::Release);
        }
    }

    /// For `thread`: it starts no operation until it calls [`back`](Self::back).
    pub fn away(&self, thread: u32) {
        self.threads[thread as usize].store(AWAY, Ordering::Release);
    }

    /// For `thread`, after [`away`](Self::away) and before its next operation.
    pub fn back(&self, thread: u32) {
        let own = &self.threads[thread as usize];
        own.store(self.published.load(Ordering::Acquire), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

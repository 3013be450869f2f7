//! [`Budget`]: memory that the connections of a host share, given out in the order in which they ask.
//!
//! A connection reserves memory before it uses it. If the budget cannot cover that now, the connection
//! queues ([`Budget::queue`]); memory that is released goes to the connections that queue, in their order.
//! While a connection queues, others get no large part, so that they do not overtake it. Small parts
//! have a queue of their own, which is served first, and a sixteenth of the budget is kept for them: a
//! client that asks for little does not wait for those that ask for much.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Memory of one connection, in bytes, up to which it passes the queue of large parts.
const SMALL_BYTES: usize = 16 * 1024;

/// The part of the budget that only small reservations use: one in so many.
const SMALL_PART: usize = 16;

/// A memory budget in bytes; a clone is the same budget.
///
/// ```
/// use gossamer_kv_store::memcached::{Budget, Output};
/// let budget = Budget::new(100);
/// let mut output = Output::new(&budget);
/// assert!(output.reserve(80).is_ok());
/// assert_eq!(Output::new(&budget).reserve(80).unwrap_err().bytes, 80);
/// output.push(b"END\r\n");
/// output.settle();
/// assert_eq!(budget.available(), 95);
/// drop(output);
/// assert_eq!(budget.available(), 100);
/// ```
#[derive(Clone, Debug)]
pub struct Budget(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limit: usize,
    used: AtomicUsize,
    /// Length of both queues.
    queued: AtomicUsize,
    queues: Mutex<Queues>,
}

/// Connections that queue, by what they ask for.
#[derive(Debug, Default)]
struct Queues {
    small: VecDeque<Arc<Waiting>>,
    large: VecDeque<Arc<Waiting>>,
}

impl Queues {
    /// The queue for this many bytes.
    fn of(&mut self, bytes: usize) -> &mut VecDeque<Arc<Waiting>> {
        if bytes <= SMALL_BYTES { &mut self.small } else { &mut self.large }
    }

    fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }
}

/// A connection in the queue.
struct Waiting {
    bytes: usize,
    granted: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let queues = Mutex::default();
        let (used, queued) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Pool { limit, used, queued, queues }))
    }

    /// Whether both are the same budget.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The unreserved bytes.
    pub fn available(&self) -> usize {
        self.0.limit.saturating_sub(self.0.used.load(Ordering::Relaxed))
    }

    /// The number of connections that queue.
    pub fn waiting(&self) -> usize {
        self.0.queued.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`, unless the budget cannot cover them or they are due to others.
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.reserve_more(0, bytes).then(|| Reservation { budget: self.clone(), bytes })
    }

    /// Reserves `more` bytes for a connection that holds `held`; whether it did.
    pub(super) fn reserve_more(&self, held: usize, more: usize) -> bool {
        let is_small = held.saturating_add(more) <= SMALL_BYTES;
        (is_small || self.waiting() == 0) && self.0.take(is_small, more)
    }

    /// Charges bytes that were not reserved.
    pub(super) fn charge(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases bytes, and grants them to connections that queue.
    pub(super) fn release(&self, bytes: usize) {
        // In one order with the two of `queue`: either this finds the place there, or that finds the
        // memory that is released here.
        self.0.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.0.queued.load(Ordering::SeqCst) > 0 {
            self.0.grant(&mut self.0.queues.lock());
        }
    }

    /// Queues for `bytes`. `wake` is called when they are granted, by the thread that released them,
    /// and must not use the budget.
    pub fn queue(&self, bytes: usize, wake: impl Fn() + Send + Sync + 'static) -> Place {
        let (granted, wake) = (AtomicBool::new(false), Box::new(wake));
        let waiting = Arc::new(Waiting { bytes, granted, wake });
        let mut queues = self.0.queues.lock();
        queues.of(bytes).push_back(waiting.clone());
        self.0.queued.store(queues.len(), Ordering::SeqCst);
        self.0.grant(&mut queues);
        drop(queues);
        Place { budget: self.clone(), waiting: Some(waiting) }
    }
}

impl Pool {
    fn take(&self, is_small: bool, bytes: usize) -> bool {
        let limit = if is_small { self.limit } else { self.limit - self.limit / SMALL_PART };
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= limit);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Grants memory to those that queue, as far as it reaches.
    fn grant(&self, queues: &mut Queues) {
        for queue in [&mut queues.small, &mut queues.large] {
            while let Some(first) = queue.front()
                && self.take(first.bytes <= SMALL_BYTES, first.bytes)
            {
                first.granted.store(true, Ordering::Release);
                (first.wake)();
                queue.pop_front();
            }
        }
        self.queued.store(queues.len(), Ordering::SeqCst);
    }
}

/// A place in the queue of a budget; given up on drop.
#[derive(Debug)]
pub struct Place {
    budget: Budget,
    waiting: Option<Arc<Waiting>>,
}

impl Place {
    /// Whether the memory is granted.
    pub fn is_granted(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.granted.load(Ordering::Acquire))
    }

    /// The memory, if it is granted.
    pub fn into_reservation(mut self) -> Option<Reservation> {
        let waiting = self.waiting.take_if(|waiting| waiting.granted.load(Ordering::Acquire))?;
        Some(Reservation { budget: self.budget.clone(), bytes: waiting.bytes })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let mut queues = self.budget.0.queues.lock();
        if waiting.granted.load(Ordering::Acquire) {
            self.budget.0.used.fetch_sub(waiting.bytes, Ordering::SeqCst);
        } else {
            queues.of(waiting.bytes).retain(|other| !Arc::ptr_eq(other, &waiting));
        }
        // To those behind.
        self.budget.0.grant(&mut queues);
    }
}

/// Reserved memory; released on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: usize,
}

impl Reservation {
    /// How much it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Passes the memory on; the budget, and how much is to be released to it.
    pub(super) fn into_parts(mut self) -> (Budget, usize) {
        let bytes = std::mem::take(&mut self.bytes);
        (self.budget.clone(), bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 100_000;

    /// A place, and how often it was woken.
    fn queue(budget: &Budget, bytes: usize) -> (Place, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = woken.clone();
        (
            budget.queue(bytes, move || {
                count.fetch_add(1, Ordering::Relaxed);
            }),
            woken,
        )
    }

    #[test]
    fn the_first_that_queues_is_served_first() {
        let budget = Budget::new(2 * LARGE + LARGE / 2);
        let [one, two] = [(); 2].map(|()| budget.reserve(LARGE).unwrap());
        assert!(budget.reserve(LARGE).is_none());
        let (first, first_woken) = queue(&budget, 2 * LARGE);
        let (second, second_woken) = queue(&budget, LARGE);
        drop(one);
        // There is memory for the second one, and for others that come now, but the first one needs it.
        assert!(!first.is_granted() && !second.is_granted());
        assert!(budget.reserve(LARGE).is_none() && budget.reserve(SMALL_BYTES).is_some());
        drop(two);
        assert!(first.is_granted() && !second.is_granted());
        let taken = first.into_reservation().unwrap();
        assert_eq!((taken.bytes(), budget.available()), (2 * LARGE, LARGE / 2));
        drop(taken);
        assert!(second.is_granted());
        let woken = [first_woken, second_woken].map(|woken| woken.load(Ordering::Relaxed));
        assert_eq!((woken, budget.waiting()), ([1, 1], 0));
        drop(second);
        assert_eq!(budget.available(), 2 * LARGE + LARGE / 2);
    }

    #[test]
    fn one_that_leaves_the_queue_lets_those_behind_it_pass() {
        let budget = Budget::new(2 * LARGE);
        let held = budget.reserve(LARGE).unwrap();
        let (first, _) = queue(&budget, LARGE + 1);
        let (second, _) = queue(&budget, LARGE / 2);
        assert!(!first.is_granted() && !second.is_granted());
        drop(first);
        assert!(second.is_granted());
        drop((held, second));
        assert_eq!((budget.available(), budget.waiting()), (2 * LARGE, 0));
    }

    #[test]
    fn a_small_part_that_queues_does_not_wait_for_large_ones() {
        let budget = Budget::new(16 * SMALL_BYTES);
        let large = budget.reserve(15 * SMALL_BYTES).unwrap();
        let small = budget.reserve(SMALL_BYTES).unwrap();
        let (first, _) = queue(&budget, LARGE);
        let (second, woken) = queue(&budget, SMALL_BYTES);
        drop(small);
        assert!(second.is_granted() && !first.is_granted());
        assert_eq!((woken.load(Ordering::Relaxed), budget.waiting()), (1, 1));
        drop((large, second));
        assert!(first.is_granted());
    }

    #[test]
    fn small_parts_are_there_when_large_ones_have_taken_the_rest() {
        let budget = Budget::new(16 * SMALL_BYTES);
        let held = budget.reserve(15 * SMALL_BYTES).unwrap();
        let small = budget.reserve(SMALL_BYTES).unwrap();
        assert!(budget.reserve(1).is_none());
        drop(small);
        assert!(budget.reserve(SMALL_BYTES + 1).is_none() && budget.reserve(SMALL_BYTES).is_some());
        drop(held);
    }
}

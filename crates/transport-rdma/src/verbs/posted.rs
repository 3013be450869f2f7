//! [`Posted`]: how many work requests and doorbells the queue pairs of a device have had.

use std::ops::Sub;
use std::sync::{Arc, Mutex, PoisonError};

use primitive::CachePadded;
use primitive::sync::{AtomicU64, Ordering};

/// Work requests that a process has posted to its send queues, and with how many doorbells.
///
/// The difference of two is what was posted in between:
///
/// ```
/// use gossamer_transport_rdma::Posted;
/// let before = Posted { work_requests: 7, doorbells: 5 };
/// let after = Posted { work_requests: 10, doorbells: 6 };
/// assert_eq!(after - before, Posted { work_requests: 3, doorbells: 1 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// Work requests: writes, reads, atomics and sends. Receives do not count.
    pub work_requests: u64,
    /// Calls that hand requests to the device, each with one or more of them.
    pub doorbells: u64,
}

impl Sub for Posted {
    type Output = Posted;
    fn sub(self, before: Posted) -> Posted {
        Posted {
            work_requests: self.work_requests - before.work_requests,
            doorbells: self.doorbells - before.doorbells,
        }
    }
}

/// What one queue pair has posted. Only the thread that posts writes it, so that counting takes no
/// locked instruction.
#[derive(Default)]
pub(super) struct PostCounter(CachePadded<[AtomicU64; 2]>);

impl PostCounter {
    /// Counts a doorbell with `work_requests` of them. Not for two threads at once.
    pub(super) fn add(&self, work_requests: u64) {
        for (counter, addend) in self.0.iter().zip([work_requests, 1]) {
            counter.store(counter.load(Ordering::Relaxed) + addend, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Posted {
        let [work_requests, doorbells] = &*self.0;
        Posted {
            work_requests: work_requests.load(Ordering::Relaxed),
            doorbells: doorbells.load(Ordering::Relaxed),
        }
    }
}

/// The counters of all queue pairs that a device has had: those that are gone count on.
#[derive(Default)]
pub(super) struct PostCounters(Mutex<Vec<Arc<PostCounter>>>);

impl PostCounters {
    /// A counter for another queue pair.
    pub(super) fn counter(&self) -> Arc<PostCounter> {
        let counter = Arc::new(PostCounter::default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(counter.clone());
        counter
    }

    /// The sum of all.
    pub(super) fn sum(&self) -> Posted {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.iter().map(|counter| counter.read()).fold(Posted::default(), |sum, one| Posted {
            work_requests: sum.work_requests + one.work_requests,
            doorbells: sum.doorbells + one.doorbells,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_that_are_gone_count_on() {
        let counters = PostCounters::default();
        let (first, second) = (counters.counter(), counters.counter());
        first.add(3);
        second.add(1);
        drop(first);
        second.add(2);
        assert_eq!(counters.sum(), Posted { work_requests: 6, doorbells: 3 });
    }
}

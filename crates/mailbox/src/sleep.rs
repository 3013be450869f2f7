//! How a side sleeps until the other one has written something, and how that one wakes it.
//!
//! ```text
//!   sleeper                              writer, which maps the sleeper's memory
//!   1. word = 1                          1. write what it has to say
//!   2. fence                             2. fence
//!   3. look once more; sleep             3. notify, if the word is not 0
//! ```
//!
//! One of them sees the other: no wake is lost. A writer that does not map the memory cannot look; its
//! writes carry a notification each, unless the sleeper never sleeps.

use std::time::Duration;

use gossamer_segment::{Notifications, RemoteSegment, Segment, SegmentError, Segments};
use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};

/// The longest sleep: then the sleeper looks whether the other side is still there.
pub(crate) const LONGEST: Duration = Duration::from_millis(50);

/// Sleeps for up to `longest`, unless `is_ready`. `at` is the word of `segment` that says so.
#[track_caller]
pub(crate) fn sleep(
    segment: &Segment,
    at: usize,
    notifications: &Notifications,
    longest: Duration,
    mut is_ready: impl FnMut() -> bool,
) -> Result<(), SegmentError> {
    // Notifications of what was seen since would end the sleep.
    while notifications.try_next()?.is_some() {}
    let memory = segment.memory();
    announce(memory, at);
    let slept = if is_ready() { Ok(None) } else { notifications.wait_timeout(longest) };
    memory.store(at, 0, Ordering::Relaxed);
    slept.map(drop)
}

/// Behind a write to mapped memory: wakes its owner, if the word at `at` says that it sleeps. It does
/// not wait for an owner that takes no notifications: one that sleeps looks again by itself, after
/// [`LONGEST`].
#[inline]
#[track_caller]
pub(crate) fn wake(segment: &RemoteSegment, at: usize) -> Result<(), SegmentError> {
    if must_wake(|| segment.at_byte::<u64>(at).read())? { notify(segment) } else { Ok(()) }
}

/// Steps 1 and 2 of a sleeper, whose word is at byte `at`.
pub fn announce(memory: &SharedBytes, at: usize) {
    memory.store(at, 1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Steps 2 and 3 of a writer: whether the sleeper, whose word `load` loads, is to be notified.
#[inline]
pub fn must_wake<E>(load: impl FnOnce() -> Result<u64, E>) -> Result<bool, E> {
    fence(Ordering::SeqCst);
    Ok(load()? != 0)
}

#[cold]
#[inline(never)]
#[track_caller]
fn notify(segment: &RemoteSegment) -> Result<(), SegmentError> {
    segment.try_write_notify(0, &[]).map(drop)
}

/// For a side that is about to look again, and may wait: lets fibers or lanes of the calling thread go on.
pub(crate) fn let_others(segments: &Segments) {
    if fiber::in_fiber() {
        fiber::yield_to_worker();
    } else {
        segments.poll();
    }
}

//! Segments from the fibers of a rack: [`segments`].

use gossamer_segment::Segments;

use crate::worker::try_shared;

/// This process's handle to the segments of the rack, which exports and opens them with options. A
/// fiber calls this, and may pass the result to any other thread of the process and to tasks of an
/// async runtime: a thread of the rack executes their operations.
///
/// ```
/// use gossamer::{Rack, RemoteSegment, Segment};
///
/// Rack::new().threads(2).run(|| {
///     let owner = Segment::builder("prices").len(4096).export().unwrap();
///     let segments = gossamer::segments();
///     let outside = gossamer::spawn_blocking(move || {
///         let prices = segments.open("prices").unwrap();
///         prices.at::<u64>(3).write_notify(&70).unwrap();
///     });
///     let notification = owner.notified().unwrap(); // parks this fiber
///     assert_eq!((notification.offset, notification.len), (24, 8));
///     assert_eq!(RemoteSegment::open("prices").unwrap().at::<u64>(3).read().unwrap(), 70);
///     outside.join().unwrap();
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
///
/// # Panics
/// Outside a thread of a rack.
#[must_use]
#[track_caller]
pub fn segments() -> Segments {
    match try_shared() {
        Ok(shared) => shared.segments.clone(),
        Err(error) => panic!("{error}; or call `segments` in a fiber, and pass its result on"),
    }
}

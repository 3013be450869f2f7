//! Operations as futures, for tasks of an async runtime: [`Pending`].
//!
//! A task's thread is not attached to the rack and must not block. So it hands its operation to an
//! attached thread, as other threads do, and that thread completes the future.
//!
//! Notifications are futures without this: [`Notifications`](crate::Notifications).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::attached;
use crate::error::SegmentError;
use crate::local::{Segment, SegmentBuilder};
use crate::remote::{OpenOptions, RemoteElement, RemoteSegment};
use crate::segments::Segments;
use crate::shared::Shared;

/// The future of an operation on a segment, or on a name.
///
/// The operation runs whether or not this is polled; dropping this only discards the result. So the
/// operation owns its buffers. Operations begin in the order of their calls. In a rack each has a
/// fiber, so the next begins while the first waits: if the order matters, await the first. A thread
/// of [`Segments::serve`] executes them one after another.
#[must_use = "a future does nothing for you unless it is awaited"]
pub struct Pending<R>(Arc<Mutex<State<R>>>);

struct State<R> {
    result: Option<Result<R, SegmentError>>,
    waker: Option<Waker>,
}

impl<R> Future for Pending<R> {
    type Output = Result<R, SegmentError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = self.0.lock().result.is_some();
        f.debug_struct("Pending").field("has_ended", &has_ended).finish_non_exhaustive()
    }
}

/// Completes a future; with an error if this is dropped before there is a result.
struct Settle<R>(Arc<Mutex<State<R>>>);

impl<R> Settle<R> {
    fn settle(&self, result: Result<R, SegmentError>) {
        let waker = {
            let mut state = self.0.lock();
            state.result.get_or_insert(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<R> Drop for Settle<R> {
    fn drop(&mut self) {
        // Without effect if there is a result. If that was taken, the future is not polled again.
        self.settle(Err(SegmentError::RackEnded));
    }
}

/// Runs `operation` on an attached thread, where it may wait.
fn begin<R: Send + 'static>(
    shared: &Arc<Shared>,
    operation: impl FnOnce() -> Result<R, SegmentError> + Send + 'static,
) -> Pending<R> {
    let state = Arc::new(Mutex::new(State { result: None, waker: None }));
    let settle = Settle(state.clone());
    match shared.spawn.get() {
        None => settle.settle(Err(SegmentError::NotAttached)),
        Some(_) if shared.has_ended() => settle.settle(Err(SegmentError::RackEnded)),
        Some(spawn) => {
            let there = shared.clone();
            spawn(Box::new(move || {
                // Otherwise its thread has been detached, at the end of the rack.
                if attached(&there).is_some() {
                    settle.settle(operation());
                }
            }));
        }
    }
    Pending(state)
}

fn failed<R>(error: SegmentError) -> Pending<R> {
    Pending(Arc::new(Mutex::new(State { result: Some(Err(error)), waker: None })))
}

/// For tasks of an async runtime.
impl Segments {
    /// As [`open`](Self::open), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`open`](Self::open).
    pub fn open_async(&self, name: &str) -> Pending<RemoteSegment> {
        self.options().open_async(name)
    }
}

/// For tasks of an async runtime.
impl OpenOptions {
    /// As [`open`](Self::open), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`open`](Self::open).
    pub fn open_async(&self, name: &str) -> Pending<RemoteSegment> {
        let (options, name) = (self.clone(), name.to_owned());
        begin(self.shared(), move || options.open(&name))
    }
}

/// For tasks of an async runtime.
impl SegmentBuilder {
    /// As [`export`](Self::export), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`export`](Self::export).
    pub fn export_async(self) -> Pending<Segment> {
        match self.shared().cloned() {
            Some(shared) => begin(&shared, move || self.export()),
            None => failed(SegmentError::NotAttached),
        }
    }
}

/// For tasks of an async runtime.
impl Segment {
    /// As [`revoke`](Self::revoke), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`revoke`](Self::revoke).
    pub fn revoke_async(self) -> Pending<()> {
        let shared = self.shared().clone();
        begin(&shared, move || self.revoke())
    }
}

/// For tasks of an async runtime: operations that own their buffers.
///
/// ```
/// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
/// use gossamer_segment::{SegmentError, Segments};
///
/// let segments = Segments::new(hosts[0].clone());
/// let _server = segments.serve(0)?;
/// let task = async {
///     let owner = segments.builder("prices").len(4096).export_async().await?;
///     let prices = segments.open_async("prices").await?;
///     prices.write_async(8, *b"70").await?;
///     prices.fence_async().await?;
///     assert_eq!(prices.read_async(8, 2).await?, b"70");
///     assert_eq!(prices.fetch_add_async(0, 1).await?, 0);
///     owner.revoke_async().await
/// };
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// runtime.block_on(task)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl RemoteSegment {
    /// Reads any number `len` of bytes at byte `at`.
    ///
    /// # Errors
    /// The future's, as of [`read_block`](Self::read_block).
    pub fn read_async(&self, at: usize, len: usize) -> Pending<Vec<u8>> {
        // Before memory is taken.
        if let Err(error) = self.check(at, len) {
            return failed(error);
        }
        let segment = self.clone();
        begin(self.shared(), move || {
            let mut bytes = vec![0; len];
            segment.read_block(at, &mut bytes)?;
            Ok(bytes)
        })
    }

    /// Writes any number of bytes at byte `at`. They are in flight when the future ends;
    /// [`fence_async`](Self::fence_async) ends once they have arrived.
    ///
    /// # Errors
    /// The future's, as of [`write_block`](Self::write_block).
    pub fn write_async(&self, at: usize, bytes: impl Into<Vec<u8>>) -> Pending<()> {
        let (segment, bytes) = (self.clone(), bytes.into());
        begin(self.shared(), move || segment.write_block(at, &bytes))
    }

    /// As [`write_async`](Self::write_async), and notifies the owner once, after all of it.
    ///
    /// # Errors
    /// As [`write_async`](Self::write_async).
    pub fn write_notify_async(&self, at: usize, bytes: impl Into<Vec<u8>>) -> Pending<()> {
        let (segment, bytes) = (self.clone(), bytes.into());
        begin(self.shared(), move || segment.write_block_notify(at, &bytes))
    }

    /// As [`compare_swap`](Self::compare_swap), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`compare_swap`](Self::compare_swap).
    pub fn compare_swap_async(&self, at: usize, expected: u64, new: u64) -> Pending<u64> {
        let segment = self.clone();
        begin(self.shared(), move || segment.compare_swap(at, expected, new))
    }

    /// As [`fetch_add`](Self::fetch_add), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`fetch_add`](Self::fetch_add).
    pub fn fetch_add_async(&self, at: usize, addend: u64) -> Pending<u64> {
        let segment = self.clone();
        begin(self.shared(), move || segment.fetch_add(at, addend))
    }

    /// As [`fence`](Self::fence), for the operations on segments of that host whose futures have
    /// ended before this is called, by all tasks and unattached threads of this process.
    ///
    /// # Errors
    /// The future's, as of [`fence`](Self::fence).
    pub fn fence_async(&self) -> Pending<()> {
        let segment = self.clone();
        begin(self.shared(), move || segment.fence())
    }
}

/// For tasks of an async runtime.
impl<T: FromBytes + IntoBytes + Send + 'static> RemoteElement<'_, T> {
    /// As [`read`](Self::read), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`read`](Self::read).
    pub fn read_async(&self) -> Pending<T> {
        let (segment, at) = (self.segment().clone(), self.offset());
        begin(self.segment().shared(), move || segment.at_byte::<T>(at).read())
    }
}

/// For tasks of an async runtime.
impl<T: IntoBytes + Immutable + Send + 'static> RemoteElement<'_, T> {
    /// As [`write`](Self::write), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`write`](Self::write).
    pub fn write_async(&self, value: T) -> Pending<()> {
        let (segment, at) = (self.segment().clone(), self.offset());
        begin(self.segment().shared(), move || segment.at_byte::<T>(at).write(&value))
    }

    /// As [`write_notify`](Self::write_notify), from any thread, as a future.
    ///
    /// # Errors
    /// The future's, as of [`write_notify`](Self::write_notify).
    pub fn write_notify_async(&self, value: T) -> Pending<()> {
        let (segment, at) = (self.segment().clone(), self.offset());
        begin(self.segment().shared(), move || segment.at_byte::<T>(at).write_notify(&value))
    }
}

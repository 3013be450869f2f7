//! [`RemoteSegment`]: a segment of another host, or of this one, that was opened; and what its
//! operations share. Reading is in `read.rs`, writing in `write.rs` and `unmapped.rs`, operations on a word in
//! `atomics.rs`.
//!
//! ```text
//!   mapped (shared memory), attached thread      otherwise
//!   check, then load or store                    Engine: a lane, then wait
//!                    \                              /
//!                     refused as Revoked: check whether the same export has other rights now
//! ```

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use transport_api::{HostId, OpError, RemoteRegion, Rights, Window};

use crate::engine::{Engine, PIECE, is_attached, run};
use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::notification::callback;
use crate::remote::element::RemoteElement;
use crate::remote::renewal::{Info, Origin};
use crate::shared::Shared;
use crate::span::offset_of;
use crate::table::Notify;

/// A segment that was opened. Clones share one state. Any thread may use it; an attached thread, such
/// as a fiber's, executes its operations directly.
///
/// # What an operation promises
///
/// | Operation | When it returns |
/// |---|---|
/// | [`write`](Self::write), [`write_block`](Self::write_block) | the bytes are in flight; [`fence`](Self::fence) returns once they have arrived |
/// | [`read`](Self::read), [`read_block`](Self::read_block) | the bytes are in the caller's buffer |
/// | [`compare_swap`](Self::compare_swap), [`fetch_add`](Self::fetch_add) | the operation has taken effect, and its result is the old value |
/// | [`fence`](Self::fence) | every earlier operation of this thread on segments of that host has taken effect, or the error names the first that was refused; notifications may still be on their way |
///
/// Operations of one thread on segments of one host take effect in their order, with two exceptions: where
/// memory is mapped, a read may take effect before earlier operations on other words, as the processor's
/// do, unless a fence is between them; and over RDMA other operations of an owner on its own segments do
/// not wait for its atomics. A word, which is
/// eight bytes at a multiple of eight, is never torn; the words of one operation have no order among
/// each other. For more than a word that must never be torn there is [`Record`](crate::Record).
///
/// Where the owner's memory is mapped (shared memory), a read or a write by an attached thread is a
/// checked copy and nothing else. Elsewhere a fiber that has to wait parks, and other fibers of its
/// thread run.
///
/// Where memory is mapped, reads and writes do not notice that the owner is gone: a fence does.
///
/// The owner may change what hosts may do ([`Segment::set_access`](crate::Segment::set_access)).
/// Operations meanwhile wait, for up to five seconds, and then go on with the new rights. From then on
/// those of an attached thread on mapped memory take a little longer; a segment that is opened again
/// is as fast as before.
///
/// These are the WRITE, READ and CAS of Thekkath, Levy and Lazowska 1994, section 3.1.
#[derive(Clone)]
pub struct RemoteSegment {
    /// The region when the segment was opened; `info` has the current one.
    pub(super) region: RemoteRegion,
    /// Whether a write needs no notification.
    is_silent: bool,
    /// Whether the processor's atomics may be used where memory is mapped.
    maps_atomics: bool,
    pub(super) shared: Arc<Shared>,
    pub(super) info: Arc<Info>,
}

impl RemoteSegment {
    pub(super) fn new(shared: Arc<Shared>, region: RemoteRegion, info: Info) -> Self {
        Self {
            region,
            is_silent: info.origin.notify != Notify::Always,
            maps_atomics: shared.transport.maps_atomics(info.origin.label.host),
            shared,
            info: Arc::new(info),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.info.origin.label.name
    }

    /// The host that exports it.
    pub fn owner(&self) -> HostId {
        self.info.origin.label.host
    }

    /// Higher than that of every earlier export of the name by its owner.
    pub fn generation(&self) -> u32 {
        self.info.origin.generation
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// The rights of this host when the segment was opened: this does not follow later changes
    /// ([`Segment::set_access`](crate::Segment::set_access)), operations do.
    pub fn rights(&self) -> Rights {
        self.region.rights()
    }

    /// Which writes notify the owner.
    #[must_use]
    pub fn notify_mode(&self) -> Notify {
        self.info.origin.notify
    }

    /// Whether its memory is mapped into this process, so that attached threads read and write it
    /// directly.
    pub fn is_mapped(&self) -> bool {
        self.region.window().is_some()
    }

    /// For layers above: whether what is written travels as one ordered stream
    /// ([`Transport::streams`](transport_api::Transport::streams)).
    #[doc(hidden)]
    pub fn is_streamed(&self) -> bool {
        self.shared.transport.streams(self.owner())
    }

    /// Element `index` of the segment as an array of `T`.
    ///
    /// ```
    /// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
    /// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
    /// # let _attached = segments.attach(0)?;
    /// # let _segment = segments.builder("prices").len(4096).export()?;
    /// let prices = segments.open("prices")?;
    /// prices.at::<u64>(3).write(&70)?;
    /// assert_eq!(prices.at::<u64>(3).read()?, 70);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn at<T>(&self, index: usize) -> RemoteElement<'_, T> {
        RemoteElement::new(self, offset_of::<T>(index))
    }

    /// The `T` at byte `offset`, which must be a multiple of `T`'s alignment.
    #[inline(always)]
    pub fn at_byte<T>(&self, offset: usize) -> RemoteElement<'_, T> {
        RemoteElement::new(self, offset)
    }

    // ---- order ---------------------------------------------------------------------------------

    /// Waits until every earlier operation of this thread on segments of the same host has taken
    /// effect there. It does not wait for notifications, which arrive when a thread of the owner takes
    /// them. A thread that is not attached waits for those of the thread that carries out
    /// its operations.
    ///
    /// # Errors
    /// The error of the first operation that was refused; the error names its segment, which may be
    /// another one of that host. [`SegmentError::AccessChanged`] if the owner has changed the access
    /// while writes were in flight, so that some of them may be lost: write them again.
    /// [`SegmentError::OtherRefused`] if the operation was on a segment that was dropped since.
    /// [`SegmentError::PeerLost`].
    #[track_caller]
    pub fn fence(&self) -> Result<(), SegmentError> {
        let segment = self.clone();
        run(&self.shared, move |engine| {
            let fenced = engine.fence(segment.owner());
            fenced.map_err(|error| segment.fence_error(engine, error))
        })
    }

    // ---- what these share ----------------------------------------------------------------------

    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether the segment has these bytes.
    #[cfg(feature = "tokio")]
    pub(crate) fn check(&self, at: usize, count: usize) -> Result<(), SegmentError> {
        OpError::check(self.region.key(), (Rights::ALL, self.len()), (at, count, Rights::NONE))
            .map_err(|error| self.refused(error))
    }

    /// The error of an operation that the owner or the transport has refused.
    pub(super) fn refused(&self, error: OpError) -> SegmentError {
        match error {
            // The generations of its regions are the transport's.
            OpError::Revoked { .. } => self.revoked(),
            error => SegmentError::refused(self.label(), error),
        }
    }

    /// The error of operations on this export once it is revoked.
    pub(super) fn revoked(&self) -> SegmentError {
        SegmentError::Revoked { segment: self.label(), generation: Some(self.generation()) }
    }

    pub(super) fn label(&self) -> Label {
        self.info.origin.label.clone()
    }

    /// Whether a write needs no notification.
    #[inline(always)]
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Stores a word where memory is mapped; false if that cannot be done here, for any reason.
    #[inline(always)]
    pub(super) fn store_word(&self, at: usize, word: u64) -> bool {
        self.is_silent && self.mapped().is_some_and(|window| window.store_word(at, word))
    }

    /// The word at a place where memory is mapped; `None` if that cannot be read here, for any reason.
    #[inline(always)]
    pub(super) fn load_word(&self, at: usize) -> Option<u64> {
        self.mapped()?.load_word(at)
    }

    /// The mapping, if the calling thread may use it directly.
    #[inline(always)]
    pub(super) fn mapped(&self) -> Option<&Window> {
        if is_attached(&self.shared) { self.region.window() } else { None }
    }

    /// The mapping, if the calling thread may use the processor's atomics on it.
    pub(super) fn mapped_atomics(&self) -> Option<&Window> {
        if self.maps_atomics { self.mapped() } else { None }
    }

    /// The thread of the owner to notify of an operation, if the segment takes a notification of it;
    /// `is_requested`: the caller asks for one.
    pub(super) fn thread_to_notify(&self, is_requested: bool) -> Option<u32> {
        let Origin { notify, thread, .. } = self.info.origin;
        notify.applies(is_requested).then_some(thread)
    }

    /// Where waiting is impossible: whether a write of `bytes`, or a notification of the thread `notify`,
    /// need not wait until others have arrived. To be asked before anything is written.
    ///
    /// # Errors
    /// [`SegmentError::WouldWait`].
    ///
    /// # Panics
    /// If it would wait inside a delegated closure, as every operation there.
    #[track_caller]
    pub(super) fn check_room(
        &self,
        engine: &Engine,
        bytes: usize,
        notify: Option<u32>,
    ) -> Result<(), SegmentError> {
        // A copy to mapped memory waits for nothing, however long it is.
        let bytes = if self.is_mapped() { bytes.min(PIECE) } else { bytes };
        if engine.has_room(self.owner(), bytes, notify) {
            return Ok(());
        }
        if callback::is_running() || !engine.can_wait() {
            return Err(SegmentError::WouldWait(self.label()));
        }
        fiber::check_may_wait("a write", Location::caller());
        Ok(())
    }
}

impl fmt::Debug for RemoteSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSegment")
            .field("name", &self.name())
            .field("owner", &self.owner())
            .field("len", &self.len())
            .field("rights", &self.rights())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

//! [`RemoteSegment`]: a segment of another host, or of this one, that was opened: reading, writing,
//! atomics, notifications and fences.
//!
//! ```text
//!   mapped (shared memory), attached thread      otherwise
//!   check, then load or store                    Engine: a lane, then wait
//!                    \                              /
//!                     refused as Revoked: check whether the same export has other rights now
//! ```

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use transport_api::{HostId, OpError, RemoteRegion, Rights, Window};

use crate::engine::{Engine, attached, is_attached, run};
use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::notification::callback;
use crate::remote::element::Element;
use crate::remote::renewal::Info;
use crate::shared::Shared;
use crate::table::Notify;

/// Bytes of one operation, at most: [`RemoteSegment::read_block`] and
/// [`RemoteSegment::write_block`] move more.
pub const MAX_OPERATION: usize = crate::engine::PIECE;

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
/// Operations of one thread on segments of one host take effect in their order. A word, which is
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
    pub(super) shared: Arc<Shared>,
    pub(super) info: Arc<Info>,
}

impl RemoteSegment {
    pub(super) fn new(shared: Arc<Shared>, region: RemoteRegion, info: Info) -> Self {
        Self { region, is_silent: info.notify != Notify::Always, shared, info: Arc::new(info) }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.info.label.name
    }

    /// The host that exports it.
    pub fn owner(&self) -> HostId {
        self.info.label.host
    }

    /// The number of earlier exports of the name by its owner.
    pub fn generation(&self) -> u32 {
        self.info.generation
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// The rights of this host when it was opened. The owner may change them
    /// ([`Segment::set_access`](crate::Segment::set_access)).
    pub fn rights(&self) -> Rights {
        self.region.rights()
    }

    /// Which writes notify the owner.
    pub fn notify(&self) -> Notify {
        self.info.notify
    }

    /// Whether its memory is mapped into this process, so that attached threads read and write it
    /// directly.
    pub fn is_mapped(&self) -> bool {
        self.region.window().is_some()
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
    pub fn at<T>(&self, index: usize) -> Element<'_, T> {
        // An index beyond all memory is out of bounds, and not misaligned.
        let last = usize::MAX - usize::MAX % align_of::<T>();
        Element::new(self, index.checked_mul(size_of::<T>()).unwrap_or(last))
    }

    /// The `T` at byte `offset`, which must be a multiple of `T`'s alignment.
    #[inline(always)]
    pub fn at_byte<T>(&self, offset: usize) -> Element<'_, T> {
        Element::new(self, offset)
    }

    // ---- writing -------------------------------------------------------------------------------

    /// Writes `bytes` at byte `at`. They are in flight when this returns.
    ///
    /// # Errors
    /// Those that this host detects: [`SegmentError::OutOfBounds`], [`SegmentError::Rights`],
    /// [`SegmentError::TooLarge`] above [`MAX_OPERATION`], [`SegmentError::PeerLost`],
    /// [`SegmentError::Revoked`]. A write that the owner refuses later is an error of
    /// the next [`fence`](Self::fence).
    #[inline]
    #[track_caller]
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        if self.is_silent
            && let Some(window) = self.mapped()
            && bytes.len() <= MAX_OPERATION
            && window.write_from(at, bytes).is_ok()
        {
            return Ok(());
        }
        self.write_over_lane(at, bytes, Notify::Conditional)
    }

    /// As [`write`](Self::write), and then notifies the owner of `bytes.len()` bytes at `at`, unless
    /// the segment takes no notifications ([`Notify::Never`]). Waits while more than 1,024
    /// notifications of this thread wait here for threads of the owner to take earlier ones.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[track_caller]
    pub fn write_notify(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.write_over_lane(at, bytes, Notify::Always)
    }

    /// Writes any number of bytes at byte `at`, in pieces, with a limited number of bytes in flight.
    ///
    /// # Errors
    /// As [`write`](Self::write), but for [`SegmentError::TooLarge`].
    #[track_caller]
    pub fn write_block(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        if self.is_silent
            && let Some(window) = self.mapped()
            && window.write_from(at, bytes).is_ok()
        {
            return Ok(());
        }
        self.block_over_lane(at, bytes, Notify::Conditional)
    }

    /// As [`write_block`](Self::write_block), and notifies the owner once, after all of it.
    ///
    /// # Errors
    /// As [`write_block`](Self::write_block).
    #[track_caller]
    pub fn write_block_notify(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.block_over_lane(at, bytes, Notify::Always)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn write_over_lane(&self, at: usize, bytes: &[u8], wanted: Notify) -> Result<(), SegmentError> {
        if bytes.len() > MAX_OPERATION {
            return Err(SegmentError::TooLarge { len: bytes.len(), max: MAX_OPERATION });
        }
        let thread = self.told(wanted);
        self.with_bytes(
            (at, thread.is_some()),
            bytes,
            Rights::WRITE,
            move |engine, region, bytes| engine.write(region, at, bytes, thread),
        )
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn block_over_lane(&self, at: usize, bytes: &[u8], wanted: Notify) -> Result<(), SegmentError> {
        let thread = self.told(wanted);
        self.with_bytes(
            (at, thread.is_some()),
            bytes,
            Rights::WRITE,
            move |engine, region, bytes| {
                match region.window() {
                    Some(window) => window.write_from(at, bytes)?,
                    None => engine.write_block(region, at, bytes)?,
                }
                match thread {
                    Some(thread) => engine.announce(region, at, bytes.len(), thread),
                    None => Ok(()),
                }
            },
        )
    }

    // ---- reading -------------------------------------------------------------------------------

    /// Fills `out` with the bytes at byte `at`. A fiber that has to wait parks. Nothing writes to
    /// `out` after this has returned, or the fiber was unwound.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`], [`SegmentError::Rights`], [`SegmentError::TooLarge`] above
    /// [`MAX_OPERATION`], [`SegmentError::Revoked`], [`SegmentError::PeerLost`].
    #[inline]
    #[track_caller]
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if let Some(window) = self.mapped()
            && out.len() <= MAX_OPERATION
            && window.read_into(at, out).is_ok()
        {
            return Ok(());
        }
        self.read_over_lane(at, out)
    }

    /// Fills `out`, of any length, with the bytes at byte `at`, several pieces at a time.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for [`SegmentError::TooLarge`].
    #[track_caller]
    pub fn read_block(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if let Some(window) = self.mapped()
            && window.read_into(at, out).is_ok()
        {
            return Ok(());
        }
        self.read_block_over_lane(at, out)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_over_lane(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if out.len() > MAX_OPERATION {
            return Err(SegmentError::TooLarge { len: out.len(), max: MAX_OPERATION });
        }
        self.read_block_over_lane(at, out)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_block_over_lane(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if is_attached(&self.shared) {
            return self.with_engine((at, out.len(), Rights::READ), |engine, region| match region
                .window()
            {
                Some(window) => window.read_into(at, out),
                None => engine.read_block(region, at, out),
            });
        }
        // Another thread reads, into memory of its own.
        let (segment, len) = (self.clone(), out.len());
        let bytes = run(&self.shared, move |_| {
            let mut bytes = vec![0; len];
            segment.read_block(at, &mut bytes)?;
            Ok(bytes)
        })?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    // ---- atomics -------------------------------------------------------------------------------

    /// If the word at byte `at` is `expected`, makes it `new`, atomically. Returns the old value,
    /// which is `expected` if it did.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`SegmentError::Misaligned`] if `at` is not a multiple of eight.
    #[track_caller]
    pub fn compare_swap(&self, at: usize, expected: u64, new: u64) -> Result<u64, SegmentError> {
        if let Some(window) = self.mapped()
            && self.is_silent
            && let Ok(old) = window.compare_swap(at, expected, new)
        {
            return Ok(old);
        }
        self.atomic_over_lane(at, Notify::Conditional, move |engine, region| {
            match region.window() {
                Some(window) => window.compare_swap(at, expected, new),
                None => engine.compare_swap(region, at, (expected, new)),
            }
        })
    }

    /// As [`compare_swap`](Self::compare_swap), and notifies the owner of the word, whether or not
    /// it was swapped. The segment must allow [`Rights::WRITE`], too.
    ///
    /// # Errors
    /// As [`compare_swap`](Self::compare_swap).
    #[track_caller]
    pub fn compare_swap_notify(
        &self,
        at: usize,
        expected: u64,
        new: u64,
    ) -> Result<u64, SegmentError> {
        self.atomic_over_lane(at, Notify::Always, move |engine, region| match region.window() {
            Some(window) => window.compare_swap(at, expected, new),
            None => engine.compare_swap(region, at, (expected, new)),
        })
    }

    /// Adds `addend` (wrapping) to the word at byte `at`, atomically. Returns the old value.
    ///
    /// # Errors
    /// As [`compare_swap`](Self::compare_swap).
    #[track_caller]
    pub fn fetch_add(&self, at: usize, addend: u64) -> Result<u64, SegmentError> {
        if let Some(window) = self.mapped()
            && self.is_silent
            && let Ok(old) = window.fetch_add(at, addend)
        {
            return Ok(old);
        }
        self.atomic_over_lane(at, Notify::Conditional, move |engine, region| {
            match region.window() {
                Some(window) => window.fetch_add(at, addend),
                None => engine.fetch_add(region, at, addend),
            }
        })
    }

    /// As [`fetch_add`](Self::fetch_add), and notifies the owner of the word. The segment must allow
    /// [`Rights::WRITE`], too.
    ///
    /// # Errors
    /// As [`compare_swap`](Self::compare_swap).
    #[track_caller]
    pub fn fetch_add_notify(&self, at: usize, addend: u64) -> Result<u64, SegmentError> {
        self.atomic_over_lane(at, Notify::Always, move |engine, region| match region.window() {
            Some(window) => window.fetch_add(at, addend),
            None => engine.fetch_add(region, at, addend),
        })
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn atomic_over_lane(
        &self,
        at: usize,
        wanted: Notify,
        operation: impl Fn(&Engine, &RemoteRegion) -> Result<u64, OpError> + Send + 'static,
    ) -> Result<u64, SegmentError> {
        let thread = self.told(wanted);
        let needs = if thread.is_some() { Rights::ATOMIC | Rights::WRITE } else { Rights::ATOMIC };
        if thread.is_some() && is_attached(&self.shared) {
            // Before the word is changed.
            self.check_room(0, true)?;
        }
        let segment = self.clone();
        run(&self.shared, move |_| {
            // If only the notification is refused, the operation is not repeated.
            let mut swapped = None;
            let result = segment.with_engine((at, 8, needs), |engine, region| {
                if !at.is_multiple_of(8) {
                    return Err(OpError::Misaligned(at));
                }
                // Checked first: a notification must not be refused after the word was changed.
                region.check(at, 8, needs)?;
                let old = match swapped {
                    Some(old) => old,
                    None => *swapped.insert(operation(engine, region)?),
                };
                if let Some(thread) = thread {
                    engine.announce(region, at, 8, thread)?;
                }
                Ok(old)
            });
            // The operation has taken effect. An owner that has revoked the segment since, or is
            // gone, gets no notification.
            swapped.map_or(result, Ok)
        })
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
            .map_err(|error| SegmentError::refused(self.label(), error))
    }

    pub(super) fn label(&self) -> Label {
        self.info.label.clone()
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

    /// The thread of the owner to notify, if the segment and the caller (`wanted`) ask for that.
    fn told(&self, wanted: Notify) -> Option<u32> {
        let tell = match self.info.notify {
            Notify::Always => true,
            Notify::Never => false,
            Notify::Conditional => wanted == Notify::Always,
        };
        tell.then_some(self.info.thread)
    }

    /// Inside a callback, which must not wait: whether a write of `bytes` need not, and, if it
    /// `notifies`, nor its notification.
    ///
    /// # Errors
    /// [`SegmentError::WouldWait`].
    fn check_room(&self, bytes: usize, notifies: bool) -> Result<(), SegmentError> {
        let has_room = |engine: Rc<Engine>| engine.has_room(self.owner(), bytes, notifies);
        if callback::is_running() && !attached(&self.shared).is_some_and(has_room) {
            return Err(SegmentError::WouldWait(self.label()));
        }
        Ok(())
    }

    /// Runs an operation with bytes of the caller, at byte `at`; `notifies`: it notifies the owner.
    #[track_caller]
    fn with_bytes(
        &self,
        (at, notifies): (usize, bool),
        bytes: &[u8],
        needs: Rights,
        operation: impl Fn(&Engine, &RemoteRegion, &[u8]) -> Result<(), OpError> + Send + 'static,
    ) -> Result<(), SegmentError> {
        let place = (at, bytes.len(), needs);
        if is_attached(&self.shared) {
            self.check_room(bytes.len(), notifies)?;
            return self.with_engine(place, |engine, region| operation(engine, region, bytes));
        }
        let (segment, bytes) = (self.clone(), bytes.to_vec());
        run(&self.shared, move |_| {
            segment.with_engine(place, |engine, region| operation(engine, region, &bytes))
        })
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

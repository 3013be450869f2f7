//! [`Segment`]: memory of this process that other hosts use under a name.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use primitive::SharedBytes;
use transport_api::{Access, HostId, OpError, RegionKey, Rights};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::run;
use crate::error::{Label, SegmentError};
use crate::local::grants::{Change, Grants};
use crate::name::Name;
use crate::notification::queue::Queue;
use crate::notification::{Notification, Notifications};
use crate::record::{Record, RecordWriter};
use crate::shared::{Exported, Shared};
use crate::table::{Entry, Notify, Published};

/// Memory of this process that other hosts read and write under a name. Dropping it withdraws the
/// name and revokes it, without waiting; [`revoke`](Self::revoke) waits until no peer accesses it.
pub struct Segment {
    shared: Arc<Shared>,
    label: Label,
    key: RegionKey,
    generation: u32,
    memory: SharedBytes,
    grants: Arc<Grants>,
    exported: Arc<Exported>,
    /// The thread that is notified.
    thread: u32,
    is_pinned: AtomicBool,
}

/// What a segment is exported with.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) len: usize,
    pub(super) access: Access,
    pub(super) notify: Notify,
}

impl Segment {
    /// Exports a segment, and publishes its name. `thread` of this process is notified.
    pub(super) fn export(
        shared: &Arc<Shared>,
        label: Label,
        Settings { len, access, notify }: Settings,
        thread: u32,
    ) -> Result<Segment, SegmentError> {
        let clerk = &shared.clerk;
        if len == 0 {
            return Err(SegmentError::Empty(label));
        }
        // Before any memory is taken. Another thread may still be first.
        clerk.check_free(&label.name)?;
        let (key, generation) = shared.exports.lock().number(&label.name);
        let region = shared
            .transport
            .export(key, len, access.clone())
            .map_err(|error| SegmentError::region(label.clone(), error))?;
        let exported = Arc::new(Exported { len, notify, access, queue: Arc::new(Queue::new()) });
        shared.add(key, &exported);
        let memory = region.memory().clone();
        let what = Published::Segment { key, len: len as u64, notify, thread };
        let entry = Entry { name: label.name, generation, what };
        clerk.add(&*shared.transport, entry)?;
        let grants = Arc::new(Grants::new(label.clone(), region));
        let (shared, is_pinned) = (shared.clone(), AtomicBool::new(false));
        Ok(Segment { shared, label, key, generation, memory, grants, exported, thread, is_pinned })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.label.name
    }

    /// Higher than that of every earlier export of the name by this process.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The memory itself, which peers read and write at any time.
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    // ---- the owner's own accesses --------------------------------------------------------------

    /// Copies `bytes` to byte `at`. No reader sees a torn word.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.check(at, bytes.len())?;
        self.memory.write_words(at, bytes);
        Ok(())
    }

    /// Fills `out` with the bytes at byte `at`.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        self.check(at, out.len())?;
        self.memory.read_words(at, out);
        Ok(())
    }

    /// The writer of record `index` of the segment as an array of records of `T`.
    ///
    /// # Errors
    /// As [`record_at_byte`](Self::record_at_byte).
    pub fn record<T>(&self, index: usize) -> Result<RecordWriter<T>, SegmentError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        self.record_at_byte(index.saturating_mul(Record::<T>::BYTES))
    }

    /// The writer of the record of a `T` at byte `at`, which has [`Record::BYTES`] bytes. Versions
    /// continue from the one in memory. Other hosts read it with
    /// [`RemoteSegment::record`](crate::RemoteSegment::record), this process with
    /// [`Record::read_mapped`] of [`memory`](Self::memory). There must be no other writer.
    ///
    /// # Errors
    /// [`SegmentError::Misaligned`] if `at` is not a multiple of eight, [`SegmentError::OutOfBounds`].
    pub fn record_at_byte<T>(&self, at: usize) -> Result<RecordWriter<T>, SegmentError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        self.check(at, Record::<T>::BYTES)?;
        if !at.is_multiple_of(8) {
            return Err(self.misaligned(at, 8));
        }
        Ok(RecordWriter::new(self.memory.clone(), at))
    }

    #[cold]
    pub(super) fn misaligned(&self, at: usize, align: usize) -> SegmentError {
        SegmentError::Misaligned { segment: self.label.clone(), at, align }
    }

    fn check(&self, at: usize, count: usize) -> Result<(), SegmentError> {
        OpError::check(self.key, (Rights::ALL, self.len()), (at, count, Rights::NONE))
            .map_err(|error| SegmentError::refused(self.label.clone(), error))
    }

    // ---- notifications -------------------------------------------------------------------------

    /// Which writes notify this process.
    #[must_use]
    pub fn notify_mode(&self) -> Notify {
        self.exported.notify
    }

    /// The receiver of this segment's notifications.
    pub fn notifications(&self) -> Notifications {
        Notifications {
            shared: self.shared.clone(),
            queue: self.exported.queue.clone(),
            label: self.label.clone(),
            thread: self.thread,
            notify: self.exported.notify,
        }
    }

    /// Waits for the next notification: parks the fiber, or blocks the thread.
    ///
    /// # Errors
    /// [`SegmentError::NeverNotified`] if it is exported with [`Notify::Never`];
    /// [`SegmentError::RackEnded`].
    #[track_caller]
    pub fn notified(&self) -> Result<Notification, SegmentError> {
        self.notifications().wait()
    }

    /// As [`notified`](Self::notified), for up to `timeout`: `None` if no notification has come by
    /// then.
    ///
    /// # Errors
    /// As [`notified`](Self::notified).
    #[track_caller]
    pub fn notified_timeout(
        &self,
        timeout: Duration,
    ) -> Result<Option<Notification>, SegmentError> {
        self.notifications().wait_timeout(timeout)
    }

    // ---- access --------------------------------------------------------------------------------

    /// The current rights of each host.
    pub fn access(&self) -> Access {
        self.grants.now()
    }

    /// Changes the rights of each host, and returns once no operation that the new access forbids
    /// is in flight. The bytes stay as they are. Open segments stay valid: their operations wait
    /// for the change, and those that the new access forbids fail with [`SegmentError::Rights`].
    /// `access` must allow each host no more than the access that the segment was exported with.
    ///
    /// Where memory is not mapped, a write does not ask the owner: the first one after the change may
    /// return `Ok`, and the next fence reports it as [`SegmentError::AccessChanged`]; the one after
    /// that fails with [`SegmentError::Rights`].
    ///
    /// Where memory is mapped, importers check their rights themselves: this coordinates cooperating
    /// processes, and is no protection against a malicious one.
    ///
    /// # Errors
    /// [`SegmentError::Broader`], and nothing has changed; [`SegmentError::NotExported`] if the memory
    /// could not be exported again: no host can use the segment then, until this succeeds.
    /// [`SegmentError::NotQuiet`] if a host may still access the memory, as of
    /// [`revoke`](Self::revoke): no host can use the segment then, for good.
    /// [`SegmentError::NotAttached`], [`SegmentError::RackEnded`].
    #[track_caller]
    pub fn set_access(&self, access: impl Into<Access>) -> Result<(), SegmentError> {
        self.change(Change::Access(access.into()))
    }

    /// Inhibits writes, as section 3.1.1 of the paper has it for synchronisation: once this has
    /// returned, no host writes to the segment or swaps words there, not even by an operation that
    /// was in flight, until [`allow_writes`](Self::allow_writes). Reads, and writes of the owner,
    /// go on.
    ///
    /// ```
    /// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
    /// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
    /// # let _attached = segments.attach(0)?;
    /// use gossamer_segment::SegmentError;
    ///
    /// let owner = segments.builder("ledger").len(64).export()?;
    /// let ledger = segments.open("ledger")?;
    /// ledger.at::<u64>(0).write(&1)?;
    /// owner.inhibit_writes()?;
    /// assert!(matches!(ledger.at::<u64>(0).write(&2), Err(SegmentError::Rights { .. })));
    /// assert_eq!(ledger.at::<u64>(0).read()?, 1);
    /// owner.allow_writes()?;
    /// ledger.at::<u64>(0).write(&3)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`set_access`](Self::set_access).
    #[track_caller]
    pub fn inhibit_writes(&self) -> Result<(), SegmentError> {
        self.change(Change::Inhibited(true))
    }

    /// Ends the inhibition of [`inhibit_writes`](Self::inhibit_writes). Hosts need not open the
    /// segment again.
    ///
    /// # Errors
    /// As [`set_access`](Self::set_access).
    #[track_caller]
    pub fn allow_writes(&self) -> Result<(), SegmentError> {
        self.change(Change::Inhibited(false))
    }

    /// Whether writes are inhibited.
    pub fn is_write_inhibited(&self) -> bool {
        self.grants.is_inhibited()
    }

    #[track_caller]
    fn change(&self, change: Change) -> Result<(), SegmentError> {
        let grants = self.grants.clone();
        run(&self.shared, move |engine| grants.change(engine, change))
    }

    // ---- memory and life -----------------------------------------------------------------------

    /// Keeps its pages in memory until [`unpin`](Self::unpin), or until it is revoked or dropped.
    /// Memory that is registered with an RDMA device is always pinned.
    ///
    /// # Errors
    /// [`SegmentError::System`], for example if the limit of locked memory is exceeded (`ulimit -l`).
    pub fn pin(&self) -> Result<(), SegmentError> {
        let what = || format!("cannot pin {}", self.label);
        self.memory.pin().map_err(|error| SegmentError::io(what(), error))?;
        self.is_pinned.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Allows the system to swap its pages out again. Where memory is not mapped, a segment that is
    /// no multiple of a page long may share a page with another one, which is unpinned with it.
    ///
    /// # Errors
    /// [`SegmentError::System`].
    pub fn unpin(&self) -> Result<(), SegmentError> {
        self.is_pinned.store(false, Ordering::Relaxed);
        let what = || format!("cannot unpin {}", self.label);
        self.memory.unpin().map_err(|error| SegmentError::io(what(), error))
    }

    /// Withdraws the name and revokes the segment. Once this has returned, no peer accesses the
    /// memory, not even by an operation that was in flight; operations on open segments fail with
    /// [`SegmentError::Revoked`], and lookups of the name with [`SegmentError::NotFound`].
    ///
    /// # Errors
    /// [`SegmentError::NotQuiet`] if a host that maps the memory may still access it: it is lost or has
    /// left, and its process runs on for two seconds; or it lives, and one of its attached threads
    /// does not poll for 20 seconds, as in a process that a signal has stopped.
    /// [`SegmentError::NotAttached`], [`SegmentError::RackEnded`]. The segment is revoked even then,
    /// but the memory must not be used for anything else.
    #[track_caller]
    pub fn revoke(self) -> Result<(), SegmentError> {
        self.shared.clerk.remove(&self.label.name, self.generation);
        let grants = self.grants.clone();
        run(&self.shared, move |engine| grants.revoke(engine))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.shared.clerk.remove(&self.label.name, self.generation);
        self.shared.remove(self.key, &self.exported);
        self.exported.queue.close();
        if *self.is_pinned.get_mut() {
            // Its memory may be used again, by the transport or the allocator. What fails stays pinned.
            let _ = self.memory.unpin();
        }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostId(host) = self.label.host;
        f.debug_struct("Segment")
            .field("name", &self.name())
            .field("host", &host)
            .field("len", &self.len())
            .field("access", &self.access())
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

//! [`Segment`]: memory of this process that other hosts use under a name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use primitive::SharedBytes;
use transport_api::{Access, HostId, OpError, Region, RegionKey, Rights};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::run;
use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::notification::queue::Queue;
use crate::notification::{Notification, Notifications};
use crate::record::{Record, RecordWriter};
use crate::shared::{Exported, Shared};
use crate::table::{Entry, Notify, Published};

/// What is exported of a segment, and with which access.
struct Export {
    /// `None` while its access changes, and once that has failed.
    region: Option<Region>,
    /// The access that it was exported with, which later ones never exceed.
    first: Access,
    now: Access,
}

/// Memory of this process that other hosts read and write under a name. Dropping it takes the name
/// back and revokes it, without waiting; [`revoke`](Self::revoke) waits until no peer touches it.
pub struct Segment {
    shared: Arc<Shared>,
    label: Label,
    key: RegionKey,
    generation: u32,
    memory: SharedBytes,
    export: Mutex<Export>,
    exported: Arc<Exported>,
}

impl Segment {
    /// Exports a segment, and publishes its name. `notify` says when, and which thread of this
    /// process, a writer is to notify.
    pub(super) fn export(
        shared: &Arc<Shared>,
        label: Label,
        len: usize,
        access: Access,
        (notify, thread): (Notify, u32),
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
        let exported = Arc::new(Exported { len, notify, queue: Arc::new(Queue::new()) });
        shared.add(key, &exported);
        let memory = region.memory().clone();
        let export = Export { region: Some(region), first: access.clone(), now: access };
        let what = Published::Segment { key, len: len as u64, notify, thread };
        let entry = Entry { name: label.name, generation, what };
        clerk.add(&*shared.transport, entry)?;
        let export = Mutex::new(export);
        Ok(Segment { shared: shared.clone(), label, key, generation, memory, export, exported })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.label.name
    }

    /// How often this process had exported the name before.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The memory itself, which peers read and write without asking.
    pub fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    // ---- the owner's own accesses --------------------------------------------------------------

    /// Copies `bytes` to byte `at`. No reader sees a word that is half written.
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

    /// Writes element `index` of the segment as an array of `T`.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    pub fn put<T: IntoBytes + Immutable>(
        &self,
        index: usize,
        value: &T,
    ) -> Result<(), SegmentError> {
        self.write(index.saturating_mul(size_of::<T>()), value.as_bytes())
    }

    /// Reads element `index` of the segment as an array of `T`.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    pub fn get<T: FromBytes + IntoBytes>(&self, index: usize) -> Result<T, SegmentError> {
        let mut value = T::new_zeroed();
        self.read(index.saturating_mul(size_of::<T>()), value.as_mut_bytes())?;
        Ok(value)
    }

    fn check(&self, at: usize, count: usize) -> Result<(), SegmentError> {
        OpError::check(self.key, (Rights::ALL, self.len()), (at, count, Rights::NONE))
            .map_err(|error| SegmentError::refused(self.label.clone(), error))
    }

    /// The writer of record `index` of the segment as an array of records of `T`, of which there is
    /// one at a time.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    pub fn record_writer<T: FromBytes + IntoBytes + Immutable>(
        &self,
        index: usize,
    ) -> Result<RecordWriter<T>, SegmentError> {
        let at = index.saturating_mul(Record::<T>::BYTES);
        self.check(at, Record::<T>::BYTES)?;
        Ok(RecordWriter::new(self.memory.clone(), at))
    }

    // ---- notifications -------------------------------------------------------------------------

    /// When writes notify this process.
    pub fn notify(&self) -> Notify {
        self.exported.notify
    }

    /// Where the notifications of this segment are taken.
    pub fn notifications(&self) -> Notifications {
        Notifications {
            shared: self.shared.clone(),
            queue: self.exported.queue.clone(),
            label: self.label.clone(),
        }
    }

    /// Waits for the next notification: parks the fiber, or blocks the thread.
    ///
    /// # Errors
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

    /// What each host may do to it now.
    pub fn access(&self) -> Access {
        self.export.lock().now.clone()
    }

    /// Keeps its pages in memory until [`unpin`](Self::unpin). Memory of RDMA devices always is.
    ///
    /// # Errors
    /// [`SegmentError::System`]: a user may pin only so much (`ulimit -l`).
    pub fn pin(&self) -> Result<(), SegmentError> {
        let what = || format!("cannot pin {} ({} bytes; see `ulimit -l`)", self.label, self.len());
        Ok(()).map_err(|error| SegmentError::io(what(), error))
    }

    /// Lets the system move its pages out of memory again.
    ///
    /// # Errors
    /// [`SegmentError::System`].
    pub fn unpin(&self) -> Result<(), SegmentError> {
        let what = || format!("cannot unpin {}", self.label);
        Ok(()).map_err(|error| SegmentError::io(what(), error))
    }

    /// Changes what each host may do, and returns once no operation is under way that the new access
    /// does not allow. Operations of peers meanwhile wait for it. `access` must allow each host no
    /// more than the access that the segment was exported with.
    ///
    /// # Errors
    /// [`SegmentError::Region`] if it allows more.
    #[track_caller]
    pub fn set_access(&self, access: impl Into<Access>) -> Result<(), SegmentError> {
        let _ = access.into();
        Err(SegmentError::NotAttached)
    }

    /// Takes the name back and revokes the segment. Once this has returned, no peer touches the
    /// memory, whatever it had under way, and imports fail with [`SegmentError::Revoked`].
    ///
    /// # Errors
    /// [`SegmentError::NotAttached`], [`SegmentError::RackEnded`]; it is revoked also then.
    #[track_caller]
    pub fn revoke(self) -> Result<(), SegmentError> {
        self.shared.clerk.remove(&self.label.name, self.generation);
        let (key, label) = (self.key, self.label.clone());
        run(&self.shared, move |engine| {
            engine.revoke(key).map_err(|error| SegmentError::region(label, error))
        })
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.shared.clerk.remove(&self.label.name, self.generation);
        self.shared.exports.lock().remove(self.key, &self.exported);
        self.exported.queue.close();
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

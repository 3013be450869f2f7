//! [`Lane`]: one thread's ordered path to one host; [`Parker`]: where an idle thread sleeps.

use std::sync::Arc;
use std::time::Duration;

use primitive::SharedBytes;

use crate::park_word::PeerParkWord;
use crate::{
    HostId, LossReason, Namespace, NoticeInbox, NoticeOutbox, OpError, RegionError, RegionKey,
    RemoteRegion, Rights, Tag, ThreadId,
};

/// Something that a lane reports when it is polled.
#[derive(Debug)]
pub enum Event {
    /// A `read`, `compare_swap`, `fetch_add` or `fence` is done, or a revocation that
    /// [`Transport::begin_revoke`](crate::Transport::begin_revoke) began.
    Completed {
        /// The token given with the operation.
        token: u64,
        /// The old value of an atomic, the number of bytes of a read, otherwise zero.
        value: u64,
    },
    /// An operation could not be carried out, or a revocation has ended although the region is not known
    /// to be quiet ([`OpError::NotQuiet`]).
    Failed {
        /// The token given with the operation; `None` for one that takes no token. Not all of
        /// those are reported, but the next [`fence`](Lane::fence) says whether there was one.
        token: Option<u64>,
        /// Why.
        error: OpError,
    },
    /// An import that [`Transport::begin_import`](crate::Transport::begin_import) began has ended.
    Imported {
        /// The token given with it.
        token: u64,
        /// The region, or why the import failed.
        result: Result<RemoteRegion, RegionError>,
    },
    /// A peer's [`write_notify`](Lane::write_notify) or [`notify`](Lane::notify) to this thread has
    /// arrived, data first. The region may have been revoked after the data arrived. A host that maps
    /// this one's memory writes what this says there itself, so that no transport can check it:
    /// compare `key`, `at` and `len` with the region before using them.
    Notified {
        /// The thread that wrote.
        from: ThreadId,
        /// The region it wrote to.
        key: RegionKey,
        /// The byte at which it wrote.
        at: u64,
        /// Bytes that it wrote.
        len: u64,
        /// The word that it sent along.
        value: u32,
    },
    /// A bulk payload for this thread has arrived as a whole.
    Bulk {
        /// The thread that sent it.
        from: ThreadId,
        /// The tag it was sent with.
        tag: Tag,
        /// The payload.
        payload: Vec<u8>,
    },
    /// The host at the other end is gone. Reported once per lane, as its last event: operations,
    /// imports and fences whose end was not reported before have failed.
    Peer(PeerEvent),
}

impl Event {
    /// For backends: the end of the revocation of region `key` that was begun with `token`; `busy` are
    /// the hosts that may still access the region.
    pub fn revoked(token: u64, key: RegionKey, busy: Vec<HostId>) -> Event {
        if busy.is_empty() {
            return Event::Completed { token, value: 0 };
        }
        Event::Failed { token: Some(token), error: OpError::NotQuiet { key, hosts: busy } }
    }
}

/// A write with notification that has arrived, data first, as [`Event::Notified`] reports it. All but
/// `from` is what the peer says: compare it with the region before using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The thread that wrote.
    pub from: ThreadId,
    /// The region it wrote to.
    pub key: RegionKey,
    /// The byte at which it wrote.
    pub at: u64,
    /// Bytes that it wrote.
    pub len: u64,
    /// The word that it sent along.
    pub value: u32,
}

/// What [`Lane::watch`] hands over: where something arrives for a thread.
pub enum Watch<'a> {
    /// A word, by its memory and its byte in it. Once it changes, a [`poll`](Lane::poll) is due.
    Word(&'a SharedBytes, usize),
    /// Notifications, older than what any word tells of the same host.
    Inbox(&'a NoticeInbox),
}

/// How a peer has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// It ended without a goodbye, or cannot be reached: operations on this lane fail from now on.
    Lost(HostId, LossReason),
    /// It said goodbye: it starts nothing more, and will end or has ended.
    Left(HostId),
}

impl PeerEvent {
    /// Why operations with the peer fail from now on.
    pub fn reason(&self) -> LossReason {
        match self {
            PeerEvent::Lost(_, reason) => reason.clone(),
            PeerEvent::Left(_) => LossReason::Connection("it has left the rack".into()),
        }
    }
}

/// One thread's ordered path to one remote host.
///
/// # Order
/// Operations of one lane take effect in the order they were started, but the bytes of one `write`
/// have no order among themselves and no atomicity: a peer may see its tail before its head.
/// A reader that sees the word of a [`signal`](Self::signal) (with an acquire load) sees all of every
/// earlier write of the same lane. Nothing orders two lanes.
///
/// There are two exceptions:
/// - Where memory is mapped, a read may take effect before earlier operations of the lane on other words,
///   as the processor's reads do, unless a [`fence`](Self::fence) is between them.
/// - Where a device carries out the atomics of a host on its own memory (RDMA), those of the lane to the
///   own host keep their order among themselves, and a [`fence`](Self::fence) covers them, but every other
///   operation of that lane is done when its call returns, also if an earlier atomic is not. Wait for the
///   atomic's [`Event::Completed`] before you start what must follow it.
///
/// # Progress
/// Operations may wait in the lane until [`flush`](Self::flush). Calls never block and never wait
/// for the peer. Completions, notifications, bulk payloads and losses come out of
/// [`poll`](Self::poll), which also moves what was waiting for room.
///
/// # Errors
/// Bounds and rights are checked before anything is written: [`OpError::OutOfBounds`],
/// [`OpError::Rights`], [`OpError::Revoked`]; [`OpError::Misaligned`] for words that are not
/// 8-aligned; [`OpError::PeerLost`] once [`poll`](Self::poll) has reported the end of the peer;
/// [`OpError::Foreign`] for a region that this transport did not import from this lane's peer.
/// Between hosts that map each other's memory
/// ([`Transport::maps`](crate::Transport::maps)), a lane also takes imports of this host's own
/// regions: writing them is how the owner of shared memory hands it to the peer.
pub trait Lane: Send {
    /// The host at the other end.
    fn peer(&self) -> HostId;

    /// Writes all of `from` to byte `at` of the region. `from` must not change until the next
    /// [`flush`](Self::flush) has returned. When `from` is the very memory that is written (a
    /// mapped region), there is nothing to do.
    ///
    /// # Errors
    /// See above.
    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError>;

    /// Writes `word` to byte `at` as one atomic store: a reader that sees it sees every earlier
    /// write of this lane.
    ///
    /// # Errors
    /// See above.
    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError>;

    /// Writes `parts`, one behind the other, behind the word at byte `at`, and then stores `tag` there, as
    /// [`signal`](Self::signal) does. The parts may change once this has returned. `staging` is at least as
    /// long as all parts, and must not change until the next [`flush`](Self::flush) has returned. An error
    /// says that the tag is not written.
    ///
    /// # Errors
    /// See above.
    fn write_tagged(
        &mut self,
        to: &RemoteRegion,
        (at, tag): (usize, u64),
        parts: &[&[u8]],
        staging: &SharedBytes,
    ) -> Result<(), OpError> {
        write_staged(self, to, (at, tag), parts, staging)
    }

    /// As [`write_tagged`](Self::write_tagged), with the bytes of `from`, which must not change until the next
    /// [`flush`](Self::flush) has returned.
    ///
    /// # Errors
    /// See above.
    fn write_tagged_memory(
        &mut self,
        to: &RemoteRegion,
        (at, tag): (usize, u64),
        from: &SharedBytes,
    ) -> Result<(), OpError> {
        write_and_signal(self, to, (at, tag), from)
    }

    /// Reads `into.len()` bytes from byte `at` into `into`; [`Event::Completed`] says when.
    ///
    /// # Errors
    /// See above.
    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError>;

    /// If the word at byte `at` is `expected`, makes it `new`, atomically; [`Event::Completed`]
    /// carries the old value.
    ///
    /// # Errors
    /// See above.
    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError>;

    /// Adds `addend` (wrapping) to the word at byte `at`, atomically; [`Event::Completed`] carries
    /// the old value.
    ///
    /// # Errors
    /// See above.
    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError>;

    /// Writes as [`write`](Self::write), then tells runtime thread `thread` of the peer with
    /// [`Event::Notified`] and wakes it. This is the write with notification of Thekkath, Levy and
    /// Lazowska 1994, section 3: data alone never takes control at its receiver, and a notification
    /// does so only because the writer asks for it.
    ///
    /// The data needs no thread of the peer. The notification waits until one takes it: see
    /// [`waiting_notifications`](Self::waiting_notifications). It arrives if, and only if, the data
    /// does, also if the owner revokes the region between the two; unless other memory is exported
    /// under its key by then.
    ///
    /// # Errors
    /// See above; also [`OpError::NoSuchThread`].
    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError>;

    /// Tells runtime thread `thread` of the peer, as [`write_notify`](Self::write_notify) does, that
    /// earlier operations of this lane have changed `len` bytes at byte `at`. It is no access to the
    /// memory: it arrives also if the owner has revoked the region since it was imported, as long as
    /// no other memory was exported under its key since. So the caller of an atomic can notify the
    /// owner of it once its old value is there, however the access has changed meanwhile.
    ///
    /// # Errors
    /// See above, but for [`OpError::Revoked`]; also [`OpError::NoSuchThread`].
    fn notify(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        len: usize,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError>;

    /// Asks for a report once all operations that this lane started earlier have taken effect in the
    /// peer's memory: [`Event::Completed`], or [`Event::Failed`] with the region that refused one of
    /// those since the last fence, and the reason. Operations whose call returned an error were
    /// never started and do not count.
    ///
    /// A fence covers the data of a [`write_notify`](Self::write_notify), but neither notifications nor
    /// bulk payloads: they arrive when a thread of the peer takes them, and a fence depends on no
    /// thread of the peer's program. So it may end while both
    /// [wait](Self::waiting_notifications).
    ///
    /// # Errors
    /// [`OpError::PeerLost`].
    fn fence(&mut self, token: u64) -> Result<(), OpError>;

    /// Sends a payload of any size up to [`MESSAGE_BYTES`](primitive::limits::MESSAGE_BYTES) to
    /// runtime thread `thread` of the peer, beside the one-sided operations and unordered with
    /// them. It arrives whole, as [`Event::Bulk`], in the order of the bulk payloads of this lane
    /// to that thread. An empty payload is allowed.
    ///
    /// # Errors
    /// [`OpError::TooLarge`], [`OpError::NoSuchThread`], [`OpError::PeerLost`].
    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError>;

    /// Notifications of this lane for runtime thread `thread` of the peer that wait in this process,
    /// because that thread has not taken earlier ones, or because they are not flushed. The peer
    /// bounds how many it takes in advance; a lane that cannot hand on more keeps them, in order and
    /// without limit. So a caller that notifies without end compares this with a limit of its own
    /// before each [`write_notify`](Self::write_notify) to the thread, and otherwise polls until it is
    /// lower. Notifications for other threads of the peer do not count, because their threads may
    /// never take them. Zero for a thread that does not exist. Its meaning ends with the peer.
    fn waiting_notifications(&self, thread: u32) -> usize;

    /// Bytes of bulk payloads in a name space that wait in this process in the same way, with
    /// [`WAITING_OVERHEAD`](crate::WAITING_OVERHEAD) for each payload. A layer that answers a
    /// peer's requests stops answering above a limit.
    fn waiting_bulk(&self, namespace: Namespace) -> usize;

    /// Hands everything that was started to the device: one doorbell for a batch.
    ///
    /// # Errors
    /// [`OpError::PeerLost`].
    fn flush(&mut self) -> Result<(), OpError>;

    /// Makes sure that runtime thread `thread` of the peer, if there is one, does not sleep through
    /// what was started before, once that is flushed. Where memory is shared it costs a fence and
    /// one load when that thread is awake. Where it has to travel, call it in front of the flush,
    /// which then takes it along; behind the flush it is a message of its own. A thread that
    /// seems to be awake may be woken later, once it is seen to sleep: at a poll of any lane of this
    /// thread, before this thread sleeps itself, or within some milliseconds if it does neither.
    fn wake(&mut self, thread: u32);

    /// The park word of runtime thread `thread` of the peer, if the peer's memory is mapped and fences of
    /// its threads reach this process. While [`is_busy`](PeerParkWord::is_busy) is true,
    /// [`wake`](Self::wake) would do nothing, so the caller may skip it.
    fn park_word(&self, thread: u32) -> Option<PeerParkWord> {
        let _ = thread;
        None
    }

    /// Hands every event that is there to `sink` and makes progress; true if there was any event
    /// or any byte moved.
    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool;

    /// Where the peer's memory is mapped: for each thread of the peer, where
    /// [`write_notify`](Self::write_notify) sends its notifications if nothing is in the way, so that
    /// the thread of this lane does that without it ([`NoticeOutbox::write_notify`]). Otherwise none.
    fn outboxes(&self) -> Vec<Arc<NoticeOutbox>> {
        Vec::new()
    }

    /// Where something arrives for this lane: while no notification is in one of these inboxes and none
    /// of these words changes, a [`poll`](Self::poll) would find nothing, until the lane is used. Hands
    /// them to `each`. A caller that takes notifications out of the inboxes polls now and then as
    /// well: other events may wait behind notifications that keep coming, and the parker learns from
    /// polls which was taken last. False if there may be something already, or more to look at.
    fn watch(&self, each: &mut dyn FnMut(Watch)) -> bool {
        let _ = each;
        false
    }
}

/// [`Lane::write_tagged_memory`] as a write and a signal.
///
/// # Errors
/// Those of the lane.
pub fn write_and_signal<L: Lane + ?Sized>(
    lane: &mut L,
    to: &RemoteRegion,
    (at, tag): (usize, u64),
    from: &SharedBytes,
) -> Result<(), OpError> {
    // First, so that a bad word writes nothing and the address after it cannot overflow.
    to.check_word(at, Rights::WRITE)?;
    if !from.is_empty() {
        lane.write(to, at + size_of::<u64>(), from)?;
    }
    lane.signal(to, at, tag)
}

/// [`Lane::write_tagged`] by [`Lane::write_tagged_memory`].
///
/// # Errors
/// Those of the lane.
pub fn write_staged<L: Lane + ?Sized>(
    lane: &mut L,
    to: &RemoteRegion,
    (at, tag): (usize, u64),
    parts: &[&[u8]],
    staging: &SharedBytes,
) -> Result<(), OpError> {
    let mut end = 0;
    for part in parts {
        staging.write_from(end, part);
        end += part.len();
    }
    lane.write_tagged_memory(to, (at, tag), &staging.slice(0, end))
}

/// Where a runtime thread sleeps.
pub trait Parker: Send {
    /// Announces sleep, asks `ready` once more, and if nothing is ready sleeps until this
    /// thread is woken ([`Lane::wake`], [`Lane::write_notify`],
    /// [`Transport::unpark`](crate::Transport::unpark), a bulk payload, a peer's loss) or `timeout`
    /// has passed. Wakes without cause are allowed. What lanes of this thread have to report need
    /// not be asked for by `ready`: the parker does not sleep over it. A waker that makes work
    /// visible before it calls `wake` finds the announcement, or `ready` sees the work: no wake is
    /// lost. A `ready` that polls lanes returns true if they moved anything: that may be the work.
    fn park(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool);
}

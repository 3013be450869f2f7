//! [`Segments`]: a process's place among the segments of a rack.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use progress::Progress;
use transport_api::{HostId, Transport};

use crate::engine::{Attached, Server, here, run};
use crate::error::SegmentError;
use crate::local::Builder;
use crate::lookup;
use crate::name::Name;
use crate::published::PublishedName;
use crate::remote::{OpenOptions, RemoteSegment};
use crate::shared::{Shared, Spawn};
use crate::table::Published;

/// A process's place among the segments of a rack. Clones are the same; any thread may use it.
///
/// A thread that is *attached* carries its operations out itself, over lanes of its own. Others have
/// them carried out by a thread that is, and block.
///
/// | Program | Attached threads |
/// |---|---|
/// | a rack of `gossamer` | its runtime threads, so every fiber; `gossamer::segments()` gives this |
/// | one without fibers | those that call [`attach`](Self::attach); [`serve`](Self::serve) starts one that works for all others |
#[derive(Clone)]
pub struct Segments(pub(crate) Arc<Shared>);

impl Segments {
    /// The place of this process, whose transport this is. There is one for a transport.
    pub fn new(transport: Arc<dyn Transport>) -> Segments {
        Segments(Shared::new(transport))
    }

    /// Those of the rack that the calling thread is attached to.
    ///
    /// # Errors
    /// [`SegmentError::NotAttached`].
    pub fn current() -> Result<Segments, SegmentError> {
        here().map(Segments).ok_or(SegmentError::NotAttached)
    }

    /// This process's host.
    pub fn local(&self) -> HostId {
        self.0.local()
    }

    /// Hosts of the rack.
    pub fn hosts(&self) -> u32 {
        self.0.transport.hosts()
    }

    // ---- threads -------------------------------------------------------------------------------

    /// Attaches the calling thread, which has no fibers, as runtime thread `thread` of the
    /// transport: it waits for its operations by polling and sleeping. It must poll now and then
    /// between them ([`Attached::poll`]), because peers and revocations wait for that.
    ///
    /// # Errors
    /// [`SegmentError::Lane`], if the transport has no such thread or it was attached before.
    pub fn attach(&self, thread: u32) -> Result<Attached, SegmentError> {
        let transport = &self.0.transport;
        let lanes = (0..transport.hosts()).map(|host| transport.lane(thread, HostId(host)));
        let lanes = lanes.collect::<Result<_, _>>().map_err(SegmentError::lane)?;
        let parker = transport.parker(thread).map_err(SegmentError::lane)?;
        let all_mapped = (0..transport.hosts()).all(|host| transport.maps(HostId(host)));
        let progress = Progress::new(lanes, all_mapped);
        Ok(Attached::new(&self.0, thread, progress, Some(parker)))
    }

    /// For runtimes: attaches the calling thread, whose lanes `progress` has and whose worker polls
    /// it. Operations park the fiber that calls them.
    pub fn attach_worker(&self, thread: u32, progress: Rc<Progress>) -> Attached {
        Attached::new(&self.0, thread, progress, None)
    }

    /// Starts a thread that attaches itself as runtime thread `thread`, polls, and carries out the
    /// operations of threads that are not attached.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); [`SegmentError::System`], if no thread can be started, or
    /// operations are carried out already.
    pub fn serve(&self, thread: u32) -> Result<Server, SegmentError> {
        let segments = self.clone();
        Server::start(&self.0, thread, move || segments.attach(thread))
    }

    /// For runtimes: `spawn` has a job run on an attached thread, where it may wait; so operations of
    /// threads that are not attached are carried out. It must have one thread begin all jobs in their
    /// order, so that operations keep theirs and a fence covers them. Only the first call counts.
    pub fn set_spawn(&self, spawn: Spawn) {
        // The first is as good.
        let _ = self.0.spawn.set(spawn);
    }

    /// For runtimes: the rack has ended, so that no job is run any more.
    pub fn end(&self) {
        self.0.end();
    }

    // ---- segments ------------------------------------------------------------------------------

    /// Begins the export of a segment under `name`.
    pub fn builder(&self, name: &str) -> Builder {
        Builder::new(Some(self.0.clone()), name)
    }

    /// Opens the segment that some host exports under `name`.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn open(&self, name: &str) -> Result<RemoteSegment, SegmentError> {
        self.options().open(name)
    }

    /// Options for opening: the host, how long to wait, how to look up.
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new(self.0.clone())
    }

    /// For layers above: publishes `name` for something that is not a segment and that they keep, such
    /// as a trust. [`OpenOptions::find`] finds it.
    ///
    /// # Errors
    /// [`SegmentError::InvalidName`], [`SegmentError::NameTaken`], [`SegmentError::NamesFull`];
    /// [`SegmentError::Region`], if there is no memory for the registry.
    pub fn publish_entry(
        &self,
        name: &str,
        what: Published,
    ) -> Result<PublishedName, SegmentError> {
        PublishedName::publish(&self.0, Name::new(name)?, what)
    }

    /// Reads the entries of all names that were looked up again, and forgets those that are gone, or
    /// whose host is; returns how many are left. An open that finds its entry outdated looks up again
    /// by itself.
    ///
    /// # Errors
    /// [`SegmentError::NotAttached`], [`SegmentError::RackEnded`].
    #[track_caller]
    pub fn refresh(&self) -> Result<usize, SegmentError> {
        run(&self.0, lookup::refresh)
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments")
            .field("local", &self.local())
            .field("hosts", &self.hosts())
            .finish_non_exhaustive()
    }
}

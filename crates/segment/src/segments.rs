//! [`Segments`]: a process's handle to the segments of a rack.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use progress::Progress;
use transport_api::{HostId, Transport};

use crate::engine::{Attached, Server, current, run};
use crate::error::SegmentError;
use crate::local::SegmentBuilder;
use crate::lookup;
use crate::name::Name;
use crate::published::PublishedName;
use crate::remote::{OpenOptions, RemoteSegment};
use crate::shared::{Shared, Spawn};
use crate::table::Published;

/// A process's handle to the segments of a rack. Clones share one state; any thread may use it.
///
/// An *attached* thread executes its operations itself, over lanes of its own. Any other thread hands
/// them to an attached one, and blocks until they return.
///
/// | Program | Attached threads |
/// |---|---|
/// | a rack of `gossamer` | its runtime threads, so every fiber; `gossamer::segments()` gives this |
/// | one without fibers | those that call [`attach`](Self::attach); [`serve`](Self::serve) starts one that serves all others |
#[derive(Clone)]
pub struct Segments(pub(crate) Arc<Shared>);

impl Segments {
    /// The segments of the rack that `transport` connects. Call it once for each transport.
    pub fn new(transport: Arc<dyn Transport>) -> Segments {
        Segments(Shared::new(transport))
    }

    /// The segments of the rack that the calling thread is attached to.
    ///
    /// # Errors
    /// [`SegmentError::NotAttached`].
    pub fn current() -> Result<Segments, SegmentError> {
        current().map(Segments).ok_or(SegmentError::NotAttached)
    }

    /// This process's host.
    pub fn local(&self) -> HostId {
        self.0.local()
    }

    /// The number of hosts of the rack.
    pub fn hosts(&self) -> u32 {
        self.0.transport.hosts()
    }

    // ---- threads -------------------------------------------------------------------------------

    /// Attaches the calling thread, which has no fibers, as runtime thread `thread` of the
    /// transport: it waits for its operations by polling and sleeping. It must poll regularly
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

    /// For runtimes: attaches the calling thread, whose worker polls `progress`, which has its
    /// lanes. Operations park the fiber that calls them.
    pub fn attach_worker(&self, thread: u32, progress: Rc<Progress>) -> Attached {
        Attached::new(&self.0, thread, progress, None)
    }

    /// Starts a thread that attaches itself as runtime thread `thread`, polls, and executes the
    /// operations of threads that are not attached.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); [`SegmentError::System`], if no thread can be started;
    /// [`SegmentError::Served`], if this or [`set_spawn`](Self::set_spawn) was called before.
    pub fn serve(&self, thread: u32) -> Result<Server, SegmentError> {
        let segments = self.clone();
        Server::start(&self.0, thread, move || segments.attach(thread))
    }

    /// For runtimes: `spawn` runs a job on an attached thread, where it may wait; such jobs execute
    /// the operations of threads that are not attached. One thread must begin all jobs, in the
    /// order of the calls, so that operations keep their order and a fence covers them. Later calls
    /// have no effect.
    pub fn set_spawn(&self, spawn: Spawn) {
        // The first one stays.
        let _ = self.0.spawn.set(spawn);
    }

    /// For runtimes: the rack has ended, and no more jobs run.
    pub fn end(&self) {
        self.0.end();
    }

    // ---- segments ------------------------------------------------------------------------------

    /// Begins the export of a segment under `name`.
    pub fn builder(&self, name: &str) -> SegmentBuilder {
        SegmentBuilder::new(Some(self.0.clone()), name)
    }

    /// Opens the segment that some host exports under `name`.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn open(&self, name: &str) -> Result<RemoteSegment, SegmentError> {
        self.options().open(name)
    }

    /// As [`open`](Self::open), but only at `host`.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn open_at(&self, host: HostId, name: &str) -> Result<RemoteSegment, SegmentError> {
        self.options().host(host).open(name)
    }

    /// Options for opening: the host, the timeout, the lookup strategy.
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new(self.0.clone())
    }

    /// For layers above: publishes `name` for an object of theirs that is not a segment, such as a
    /// trust. [`OpenOptions::lookup`] finds it.
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

    /// Reads every cached entry again, and drops those that no longer exist or whose host is gone;
    /// returns the number that remain. Programs need not call this: an open that finds a stale entry
    /// looks the name up again.
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

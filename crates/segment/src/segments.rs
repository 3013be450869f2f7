//! [`Segments`]: a process's handle to the segments of a rack.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use progress::Progress;
use transport_api::{HostId, Transport};

use crate::engine::{Attached, Server, attached, current, open_lanes, run};
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
    ///
    /// | Hosts | `transport` |
    /// |---|---|
    /// | in one process, for tests | `ShmTransport::in_process(hosts, threads)?`, an element for each host |
    /// | processes of one machine | `gossamer_transport_shm::Leader` in one of them, `ShmTransport::join_leader` in the others |
    /// | processes of any machines | `gossamer_transport_tcp::TcpTransport::join(config)` in each |
    ///
    /// ```
    /// use gossamer_segment::Segments;
    /// use transport_shm::ShmTransport; // the crate gossamer-transport-shm
    ///
    /// let hosts = ShmTransport::in_process(2, 1)?; // two hosts, one thread each
    /// let [first, second] = [0, 1].map(|host| Segments::new(hosts[host].clone()));
    /// std::thread::spawn(move || {
    ///     let attached = first.attach(0).expect("thread 0 of host 0");
    ///     let segment = first.builder("greeting").len(64).export().expect("a segment");
    ///     while segment.at::<u64>(0).read().expect("a word") == 0 {
    ///         attached.poll();
    ///     }
    /// });
    /// let _server = second.serve(0)?; // this thread is not attached: that one works for it
    /// let timeout = std::time::Duration::from_secs(10);
    /// second.options().timeout(timeout).open("greeting")?.at::<u64>(0).write(&1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// between them ([`Attached::poll`]), because peers and revocations wait for that. Threads of a
    /// transport are numbered from 0, and each number is attached once, ever: also after its
    /// [`Attached`] was dropped.
    ///
    /// # Errors
    /// [`SegmentError::AlreadyAttached`]; [`SegmentError::Lane`], if the transport has no such thread
    /// or it was attached before.
    pub fn attach(&self, thread: u32) -> Result<Attached, SegmentError> {
        if current().is_some() {
            return Err(SegmentError::AlreadyAttached);
        }
        let (progress, parker) = open_lanes(&self.0, thread)?;
        Ok(Attached::new(&self.0, thread, progress, Some(parker)))
    }

    /// For runtimes: attaches the calling thread, whose worker polls `progress`, which has its
    /// lanes. Operations park the fiber that calls them.
    #[doc(hidden)]
    pub fn attach_worker(&self, thread: u32, progress: Rc<Progress>) -> Attached {
        Attached::new(&self.0, thread, progress, None)
    }

    /// Starts a thread that attaches itself as runtime thread `thread`, polls, and executes the
    /// operations of threads that are not attached. Each operation has a fiber there, so one that
    /// waits, such as an [open](OpenOptions::open) with a timeout, does not hold up others.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); [`SegmentError::System`], if no thread can be started;
    /// [`SegmentError::Served`], if this was called before, or a runtime serves the segments.
    pub fn serve(&self, thread: u32) -> Result<Server, SegmentError> {
        Server::start(&self.0, thread)
    }

    /// For runtimes: `spawn` runs a job on an attached thread, where it may wait; such jobs execute
    /// the operations of threads that are not attached. One thread must begin all jobs, in the
    /// order of the calls, so that operations keep their order and a fence covers them. Later calls
    /// have no effect.
    #[doc(hidden)]
    pub fn set_spawn(&self, spawn: Spawn) {
        // The first one stays.
        let _ = self.0.spawn.set(spawn);
    }

    /// For runtimes: the rack has ended, and no more jobs run.
    #[doc(hidden)]
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
    #[doc(hidden)]
    pub fn publish_entry(
        &self,
        name: &str,
        what: Published,
    ) -> Result<PublishedName, SegmentError> {
        PublishedName::publish(&self.0, Name::new(name)?, what)
    }

    /// For layers above: makes progress, if the calling thread is attached and has no fibers, as
    /// [`Attached::poll`] does; true if there was anything.
    #[doc(hidden)]
    pub fn poll(&self) -> bool {
        attached(&self.0).is_some_and(|engine| engine.has_no_fibers() && engine.poll())
    }

    /// For layers above: why operations on `host` fail, if the calling thread, or the one that carries
    /// out its operations, knows that it is gone. It asks no host.
    ///
    /// # Errors
    /// [`SegmentError::PeerLost`]; [`SegmentError::NotAttached`], [`SegmentError::RackEnded`].
    #[doc(hidden)]
    #[track_caller]
    pub fn check_peer(&self, host: HostId) -> Result<(), SegmentError> {
        if host.0 >= self.hosts() {
            return Err(SegmentError::NoSuchHost(host));
        }
        run(&self.0, move |engine| engine.loss_of(host).map_or(Ok(()), Err))
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

//! [`SegmentBuilder`]: the settings of a segment to export.

use std::sync::Arc;

use transport_api::{Access, Rights};

use crate::engine::{current, run};
use crate::error::{Label, SegmentError};
use crate::local::segment::{Segment, Settings};
use crate::name::Name;
use crate::shared::Shared;
use crate::table::Notify;

/// The settings of a segment to export: `segments.builder("prices").len(64 << 10).export()`.
#[derive(Clone)]
#[must_use = "nothing is exported until `export` is called"]
pub struct SegmentBuilder {
    /// `None` if the thread that created it was attached to no rack.
    shared: Option<Arc<Shared>>,
    name: String,
    settings: Settings,
    is_pinned: bool,
}

impl Segment {
    /// Begins the export of a segment under `name` at the rack that the calling thread is attached to,
    /// as [`Segments::builder`](crate::Segments::builder) does. Every fiber of a rack is on such a
    /// thread; elsewhere the export returns [`SegmentError::NotAttached`].
    ///
    /// ```
    /// use gossamer_segment::{Access, Notify, RemoteSegment, Segment};
    ///
    /// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
    /// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
    /// # let _attached = segments.attach(0)?;
    /// # let writers = [segments.local()];
    /// let owner = Segment::builder("prices")
    ///     .len(64 << 10)
    ///     .access(Access::read().write_for(writers))
    ///     .notify(Notify::Conditional)
    ///     .export()?;
    /// let prices = RemoteSegment::open("prices")?;
    /// prices.at::<u64>(3).write(&70)?;
    /// prices.fence()?;
    /// assert_eq!(owner.at::<u64>(3).read()?, 70);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(name: &str) -> SegmentBuilder {
        SegmentBuilder::new(current(), name)
    }
}

impl SegmentBuilder {
    pub(crate) fn new(shared: Option<Arc<Shared>>, name: &str) -> Self {
        Self {
            shared,
            name: name.to_owned(),
            settings: Settings {
                len: 0,
                access: Access::all(Rights::ALL),
                notify: Notify::Conditional,
            },
            is_pinned: false,
        }
    }

    /// The length in bytes; required. The memory starts zeroed.
    pub fn len(mut self, len: usize) -> Self {
        self.settings.len = len;
        self
    }

    /// The rights of each host. The default is all rights for all hosts.
    pub fn access(mut self, access: impl Into<Access>) -> Self {
        self.settings.access = access.into();
        self
    }

    /// Which writes notify its owner. The default is [`Notify::Conditional`]: those that request it.
    pub fn notify(mut self, notify: Notify) -> Self {
        self.settings.notify = notify;
        self
    }

    /// Keeps its pages in memory from the start until it is revoked or dropped, as [`Segment::pin`]
    /// does.
    pub fn pin(mut self, is_pinned: bool) -> Self {
        self.is_pinned = is_pinned;
        self
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref()
    }

    /// Exports it, and publishes its name at this host.
    ///
    /// # Errors
    /// [`SegmentError::InvalidName`], [`SegmentError::NameTaken`], [`SegmentError::NamesFull`],
    /// [`SegmentError::Empty`], [`SegmentError::Region`] if there is no memory,
    /// [`SegmentError::System`] if it cannot be pinned, [`SegmentError::NotAttached`],
    /// [`SegmentError::RackEnded`].
    #[track_caller]
    pub fn export(self) -> Result<Segment, SegmentError> {
        let name = Name::new(&self.name)?;
        let shared = self.shared.ok_or(SegmentError::NotAttached)?;
        let label = Label { name, host: shared.local() };
        let there = shared.clone();
        let settings = self.settings;
        // Notifications arrive at the thread that exports it.
        let segment =
            run(&shared, move |engine| Segment::export(&there, label, settings, engine.thread))?;
        if self.is_pinned {
            segment.pin()?;
        }
        Ok(segment)
    }
}

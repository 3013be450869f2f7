//! [`Builder`]: what a segment is to be before it is exported.

use std::sync::Arc;

use transport_api::{Access, Rights};

use crate::engine::run;
use crate::error::{Label, SegmentError};
use crate::local::segment::Segment;
use crate::name::Name;
use crate::shared::Shared;
use crate::table::Notify;

/// What a segment is to be: `segments.builder("prices").len(64 << 10).export()`.
#[derive(Clone)]
#[must_use = "nothing is exported until `export` is called"]
pub struct Builder {
    shared: Arc<Shared>,
    name: String,
    len: usize,
    access: Access,
    notify: Notify,
    is_pinned: bool,
}

impl Builder {
    pub(crate) fn new(shared: Arc<Shared>, name: &str) -> Self {
        Self {
            shared,
            name: name.to_owned(),
            len: 0,
            access: Access::all(Rights::ALL),
            notify: Notify::Conditional,
            is_pinned: false,
        }
    }

    /// Its bytes, which are zero at first.
    pub fn len(mut self, len: usize) -> Self {
        self.len = len;
        self
    }

    /// What each host may do to it. Everything, if this is not called.
    pub fn access(mut self, access: impl Into<Access>) -> Self {
        self.access = access.into();
        self
    }

    /// When writes notify its owner. When the writer asks for it, if this is not called.
    pub fn notify(mut self, notify: Notify) -> Self {
        self.notify = notify;
        self
    }

    /// Keeps its pages in memory from the start, as [`Segment::pin`] does.
    pub fn pin(mut self, is_pinned: bool) -> Self {
        self.is_pinned = is_pinned;
        self
    }

    /// Exports it, and publishes its name at this host.
    ///
    /// # Errors
    /// [`SegmentError::InvalidName`], [`SegmentError::NameTaken`], [`SegmentError::NamesFull`],
    /// [`SegmentError::Region`] if there is no memory, [`SegmentError::System`] if it cannot be
    /// pinned, [`SegmentError::NotAttached`].
    #[track_caller]
    pub fn export(self) -> Result<Segment, SegmentError> {
        let name = Name::new(&self.name)?;
        let label = Label { name, host: self.shared.local() };
        let shared = self.shared.clone();
        let pin = self.is_pinned;
        // Notifications arrive at the thread that exports it.
        let segment = run(&shared, move |engine| {
            Segment::export(
                &self.shared,
                label,
                self.len,
                self.access,
                (self.notify, engine.thread),
            )
        })?;
        if pin {
            segment.pin()?;
        }
        Ok(segment)
    }
}

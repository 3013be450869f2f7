//! [`MailboxBuilder`]: the settings of a mailbox to export.

use std::time::Duration;

use gossamer_segment::{Access, Segments};

use crate::claim::HELLO_WITHIN;
use crate::error::MailboxError;
use crate::layout::{FrameKind, Geometry};
use crate::receiver::Mailbox;

/// The settings of a mailbox to export:
/// `Mailbox::builder("orders").banks(4).frames(8).frame_bytes(256).export(&segments)`.
#[derive(Clone, Debug)]
#[must_use = "nothing is exported until `export` is called"]
pub struct MailboxBuilder {
    name: String,
    geometry: Geometry,
    senders: Option<u32>,
    access: Option<Access>,
    hello_within: Duration,
}

impl Mailbox {
    /// Begins the export of a mailbox under `name`.
    pub fn builder(name: &str) -> MailboxBuilder {
        MailboxBuilder::new(name)
    }
}

impl MailboxBuilder {
    fn new(name: &str) -> Self {
        let geometry = Geometry {
            banks: 4,
            frames: 8,
            body: 4096,
            senders: 1,
            kind: FrameKind::Variable,
            may_sleep: true,
        };
        Self {
            name: name.to_owned(),
            geometry,
            senders: None,
            access: None,
            hello_within: HELLO_WITHIN,
        }
    }

    /// Banks of each sender, from 1 to 64. The default is 4. With one bank, a sender waits for the
    /// receiver after each round of it.
    pub fn banks(mut self, banks: u32) -> Self {
        self.geometry.banks = banks;
        self
    }

    /// Frames of each bank, from 1 to 4096. The default is 8.
    pub fn frames(mut self, frames: u32) -> Self {
        self.geometry.frames = frames;
        self
    }

    /// Bytes that a frame has for arguments, payload and attachment, each of which takes a multiple of
    /// eight: from 1 to [`MAX_FRAME_BYTES`](crate::MAX_FRAME_BYTES). The default is 4096.
    pub fn frame_bytes(mut self, bytes: usize) -> Self {
        self.geometry.body = u32::try_from(bytes).unwrap_or(u32::MAX);
        self
    }

    /// Frames of one size ([`FrameKind::Fixed`]).
    pub fn fixed(mut self) -> Self {
        self.geometry.kind = FrameKind::Fixed;
        self
    }

    /// Frames as large as their contents ([`FrameKind::Variable`]): the default.
    pub fn variable(mut self) -> Self {
        self.geometry.kind = FrameKind::Variable;
        self
    }

    /// How many senders can have the mailbox open at the same time, from 1 to 1024; each has banks of
    /// its own in the memory of the mailbox. The default is two for each host of the rack.
    pub fn senders(mut self, senders: u32) -> Self {
        self.senders = Some(senders);
        self
    }

    /// What hosts may do with the segment: a sender needs all rights. The default is all rights for all
    /// hosts. Each host that may send can write to the banks of every sender.
    pub fn access(mut self, access: impl Into<Access>) -> Self {
        self.access = Some(access.into());
        self
    }

    /// For tests: how long a claim may be without a hello before it is freed.
    #[doc(hidden)]
    pub fn hello_within(mut self, limit: Duration) -> Self {
        self.hello_within = limit;
        self
    }

    /// Makes a waiting receiver poll instead of sleep: senders never notify it, which saves a fence per
    /// frame, or, where memory is not mapped, a notification.
    pub fn never_sleeps(mut self) -> Self {
        self.geometry.may_sleep = false;
        self
    }

    /// Exports the mailbox under its name. Notifications of frames arrive at the calling thread, if it is
    /// attached.
    ///
    /// # Errors
    /// [`MailboxError::Geometry`]; [`MailboxError::Segment`], as
    /// [`SegmentBuilder::export`](gossamer_segment::SegmentBuilder::export).
    #[track_caller]
    pub fn export(self, segments: &Segments) -> Result<Mailbox, MailboxError> {
        let senders = self.senders.unwrap_or_else(|| segments.hosts().saturating_mul(2));
        let geometry = Geometry { senders, ..self.geometry }.checked()?;
        let mut builder = segments.builder(&self.name).len(geometry.bytes());
        if let Some(access) = self.access {
            builder = builder.access(access);
        }
        let segment = builder.export()?;
        segment.write(0, &geometry.encode())?;
        Ok(Mailbox::new(segments.clone(), segment, geometry, self.hello_within))
    }
}

//! [`SenderOptions`]: opening a mailbox, which claims a bank set there.

use std::time::{Duration, Instant};

use gossamer_segment::{HostId, RemoteSegment, Segments};

use crate::claim::Claim;
use crate::error::MailboxError;
use crate::flags::OwnFlags;
use crate::layout::{CLAIM_BYTES, GEOMETRY_BYTES, Geometry, WORD};
use crate::sender::{Sender, label};

/// How long an open waits for an export that is not complete.
const EXPORTING: Duration = Duration::from_secs(1);

/// Options of opening a mailbox: `Sender::options(&segments).host(h).open("orders")`.
#[derive(Clone)]
#[must_use = "options do nothing until `open` is called"]
pub struct SenderOptions {
    segments: Segments,
    host: Option<HostId>,
    timeout: Duration,
}

impl Sender {
    /// Opens the mailbox that some host exports under `name`.
    ///
    /// # Errors
    /// As [`SenderOptions::open`].
    #[track_caller]
    pub fn open(segments: &Segments, name: &str) -> Result<Sender, MailboxError> {
        Sender::options(segments).open(name)
    }

    /// Options of opening a mailbox: the host, a timeout.
    pub fn options(segments: &Segments) -> SenderOptions {
        SenderOptions { segments: segments.clone(), host: None, timeout: Duration::ZERO }
    }
}

impl SenderOptions {
    /// Looks the name up at `host` only. The default is all hosts.
    pub fn host(mut self, host: HostId) -> Self {
        self.host = Some(host);
        self
    }

    /// Waits up to `timeout` for the mailbox to be exported, and for one of its bank sets to be free.
    /// The default is not to wait.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Opens the mailbox, and claims a bank set.
    ///
    /// # Errors
    /// [`MailboxError::NotAMailbox`]; [`MailboxError::Full`]; [`MailboxError::Segment`], as
    /// [`OpenOptions::open`](gossamer_segment::OpenOptions::open) and
    /// [`SegmentBuilder::export`](gossamer_segment::SegmentBuilder::export).
    #[track_caller]
    pub fn open(&self, name: &str) -> Result<Sender, MailboxError> {
        let (segments, deadline) = (&self.segments, Instant::now().checked_add(self.timeout));
        let mut options = segments.options().timeout(self.timeout);
        if let Some(host) = self.host {
            options = options.host(host);
        }
        let mailbox = options.open(name)?;
        let geometry = self.geometry(&mailbox)?;
        let flags = OwnFlags::export(segments, mailbox.owner(), &geometry)?;
        let claimed = self.claim(&mailbox, &geometry, deadline)?;
        Sender::begin(segments, mailbox, geometry, claimed, flags)
    }

    /// The geometry of the mailbox, as its owner has written it.
    #[track_caller]
    fn geometry(&self, mailbox: &RemoteSegment) -> Result<Geometry, MailboxError> {
        let not_a_mailbox = || MailboxError::NotAMailbox(label(mailbox));
        if mailbox.len() < GEOMETRY_BYTES {
            return Err(not_a_mailbox());
        }
        let start = Instant::now();
        loop {
            let mut bytes = [0; GEOMETRY_BYTES];
            mailbox.read(0, &mut bytes).map_err(MailboxError::of_mailbox)?;
            if let Some(geometry) = Geometry::decode(&bytes, mailbox.len()) {
                return Ok(geometry);
            }
            // The name is published a moment before the geometry is there.
            if start.elapsed() >= EXPORTING {
                return Err(not_a_mailbox());
            }
            pause(&self.segments);
        }
    }

    /// Claims a bank set.
    #[track_caller]
    fn claim(
        &self,
        mailbox: &RemoteSegment,
        geometry: &Geometry,
        deadline: Option<Instant>,
    ) -> Result<(u32, Claim), MailboxError> {
        let host = self.segments.local();
        let mut claims = vec![0; geometry.senders as usize * CLAIM_BYTES];
        loop {
            // Operations on mapped memory do not notice that.
            self.segments.check_peer(mailbox.owner())?;
            let read = mailbox.read_block(geometry.claim_at(0), &mut claims);
            read.map_err(MailboxError::of_mailbox)?;
            for (set, bytes) in claims.chunks(CLAIM_BYTES).enumerate() {
                let word = bytes.first_chunk::<WORD>().copied().unwrap_or_default();
                let now = Claim(u64::from_ne_bytes(word));
                if now.holder().is_none() {
                    let (set, next) = (set as u32, now.next(host));
                    let swap = mailbox.compare_swap(geometry.claim_at(set), now.0, next.0);
                    if swap.map_err(MailboxError::of_mailbox)? == now.0 {
                        return Ok((set, next));
                    }
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let (mailbox, senders) = (label(mailbox), geometry.senders);
                return Err(MailboxError::Full { mailbox, senders });
            }
            pause(&self.segments);
        }
    }
}

/// Lets a little time pass.
#[track_caller]
fn pause(segments: &Segments) {
    const PAUSE: Duration = Duration::from_micros(200);
    if fiber::in_fiber() {
        fiber::sleep(PAUSE);
    } else {
        segments.poll();
        std::thread::sleep(PAUSE);
    }
}

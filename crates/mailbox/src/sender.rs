//! [`Sender`]: writes frames to a mailbox of any host.

use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

use gossamer_segment::{
    Access, HostId, Label, MAX_OPERATION, Notifications, RemoteSegment, Rights, Segment,
    SegmentError, Segments,
};
use parking_lot::Mutex;
use primitive::sync::Ordering;

use crate::claim::{AWAITED, Claim, DONE, HELLO, Hello, flags_name, identity};
use crate::error::MailboxError;
use crate::frame::{FrameHeader, Mode, Parts};
use crate::layout::{ASLEEP, CLAIM_BYTES, GEOMETRY_BYTES, Geometry, IDENTITY, WAITING, WORD};
use crate::outgoing::{Outgoing, Target};
use crate::sleep;

/// How long an open waits for an export that is not complete.
const EXPORTING: Duration = Duration::from_secs(1);

/// How long a sender whose bank is full looks on before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);

/// A number that no other sender of this process has. A name takes memory for as long as the process
/// lives, so numbers are used again.
struct Number(u64);

/// The numbers that were given back, and the first that was never used.
static NUMBERS: Mutex<(Vec<u64>, u64)> = Mutex::new((Vec::new(), 0));

impl Number {
    fn take() -> Number {
        let mut numbers = NUMBERS.lock();
        if let Some(number) = numbers.0.pop() {
            return Number(number);
        }
        numbers.1 += 1;
        Number(numbers.1 - 1)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().0.push(self.0);
    }
}

/// Options of opening a mailbox: `Sender::options(&segments).host(h).open("orders")`.
#[derive(Clone)]
#[must_use = "options do nothing until `open` is called"]
pub struct SenderOptions {
    segments: Segments,
    host: Option<HostId>,
    timeout: Duration,
}

/// A mailbox that was opened, with banks there that no other sender uses. Dropping it gives them back:
/// the receiver still gets every frame that was sent.
///
/// A fiber that has to wait parks. Where the receiver's memory is mapped, an attached thread, such as a
/// fiber's, stores frames there directly.
pub struct Sender {
    segments: Segments,
    mailbox: RemoteSegment,
    geometry: Geometry,
    set: u32,
    claim: Claim,
    outgoing: Outgoing,
    /// What the receiver writes to. Its name's number is free once it is dropped.
    flags: Segment,
    notifications: Notifications,
    is_done: bool,
    number: Number,
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
        let number = Number::take();
        // No other host may pretend that a bank is empty.
        let access = Access::none().with(mailbox.owner(), Rights::READ | Rights::WRITE);
        let flags = segments
            .builder(&flags_name(number.0))
            .len(geometry.flags_bytes())
            .access(access)
            .export()?;
        let (set, claim) = self.claim(&mailbox, &geometry, deadline)?;
        let mode = if mailbox.is_mapped() { Mode::Mapped } else { Mode::Checked };
        let mut sender = Sender {
            segments: segments.clone(),
            geometry,
            set,
            claim,
            outgoing: Outgoing::new(geometry, set, claim.epoch(), mode),
            notifications: flags.notifications(),
            flags,
            is_done: false,
            mailbox,
            number,
        };
        sender.say_hello(mode).inspect_err(|_| sender.is_done = true)?;
        Ok(sender)
    }

    /// What the owner says about its mailbox.
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

/// Which mailbox an error is about.
fn label(mailbox: &RemoteSegment) -> Label {
    Label { name: *mailbox.name(), host: mailbox.owner() }
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

/// The claim at byte `at`, if the receiver is still there.
#[track_caller]
fn claim_now(
    segments: &Segments,
    mailbox: &RemoteSegment,
    at: usize,
) -> Result<Claim, MailboxError> {
    segments.check_peer(mailbox.owner())?;
    mailbox.at_byte::<u64>(at).read().map(Claim).map_err(MailboxError::of_mailbox)
}

/// The memory of a mailbox, as a sender writes to it.
struct To<'a> {
    mailbox: &'a RemoteSegment,
    /// Whether a frame that is written at once notifies the receiver.
    notifies: bool,
}

impl Target for To<'_> {
    type Error = SegmentError;

    #[inline]
    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        if bytes.len() <= MAX_OPERATION {
            self.mailbox.write(at, bytes)
        } else {
            self.mailbox.write_block(at, bytes)
        }
    }

    #[inline(always)]
    fn signal(&self, at: usize, word: u64) -> Result<(), SegmentError> {
        self.mailbox.signal(at, word)
    }

    #[inline(always)]
    fn signal_words<const N: usize>(
        &self,
        at: usize,
        words: &[u64; N],
    ) -> Result<(), SegmentError> {
        self.mailbox.signal_words(at, words)
    }

    fn write_frame(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        match (self.notifies, bytes.len() <= MAX_OPERATION) {
            (false, _) => self.write(at, bytes),
            (true, true) => self.mailbox.write_notify(at, bytes),
            (true, false) => self.mailbox.write_block_notify(at, bytes),
        }
    }
}

impl Sender {
    /// The host that has the mailbox.
    pub fn receiver(&self) -> HostId {
        self.mailbox.owner()
    }

    /// Bytes that a frame has for arguments, payload and attachment, each of which takes a multiple of
    /// eight.
    pub fn frame_bytes(&self) -> usize {
        self.geometry.body as usize
    }

    /// Whether frames are stored in the receiver's memory, or travel there.
    pub fn is_mapped(&self) -> bool {
        self.mailbox.is_mapped()
    }

    /// Frames that were sent.
    pub fn sent(&self) -> u64 {
        self.outgoing.next()
    }

    /// Sends a frame, which is on its way when this returns. Waits while the receiver has not emptied
    /// the bank that the frame is for.
    ///
    /// # Errors
    /// [`MailboxError::TooLarge`]; [`MailboxError::Closed`]; [`MailboxError::Segment`] with
    /// [`SegmentError::PeerLost`] if the receiver's host is gone. Where memory is mapped, that shows
    /// when the sender would wait.
    ///
    /// # Panics
    /// If it would wait where that is impossible: in a delegated closure or a callback.
    #[inline]
    #[track_caller]
    pub fn send(&mut self, header: &FrameHeader, parts: Parts<'_>) -> Result<(), MailboxError> {
        if !self.outgoing.may_write(self.flags.memory()) {
            self.wait_for_bank()?;
        }
        self.write(header, &parts)
    }

    /// As [`send`](Self::send), without waiting for a bank: false if the frame was not sent because the
    /// receiver has not emptied its bank.
    ///
    /// # Errors
    /// As [`send`](Self::send). Where memory is not mapped, a sender whose bank is full does not learn that
    /// the receiver has dropped the mailbox, as it would have to ask.
    #[inline]
    #[track_caller]
    pub fn try_send(
        &mut self,
        header: &FrameHeader,
        parts: Parts<'_>,
    ) -> Result<bool, MailboxError> {
        if !self.outgoing.may_write(self.flags.memory()) {
            self.segments.poll();
            self.segments.check_peer(self.receiver())?;
            if self.is_mapped() {
                self.check_claim()?;
            }
            return Ok(false);
        }
        self.write(header, &parts).map(|()| true)
    }

    #[inline]
    #[track_caller]
    fn write(&mut self, header: &FrameHeader, parts: &Parts<'_>) -> Result<(), MailboxError> {
        let lengths = parts.lengths(&self.geometry).map_err(|len| self.too_large(len))?;
        let to = To { mailbox: &self.mailbox, notifies: self.geometry.may_sleep };
        let written = self.outgoing.write_parts(&to, header, parts, lengths);
        written.map_err(MailboxError::of_mailbox)?;
        if self.geometry.may_sleep && self.mailbox.is_mapped() {
            // The frame was sent. If the receiver is gone, the next one fails.
            let _ = sleep::wake(&self.mailbox, ASLEEP);
        }
        Ok(())
    }

    #[cold]
    fn too_large(&self, len: usize) -> MailboxError {
        MailboxError::TooLarge { mailbox: label(&self.mailbox), len, max: self.frame_bytes() }
    }

    /// Waits until the receiver has emptied the bank of the next frame.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn wait_for_bank(&mut self) -> Result<(), MailboxError> {
        fiber::check_may_wait("the wait for a bank of a mailbox", Location::caller());
        let awake = Instant::now();
        while awake.elapsed() < AWAKE {
            if self.outgoing.may_write(self.flags.memory()) {
                return Ok(());
            }
            sleep::let_others(&self.segments);
            primitive::sync::spin_hint();
        }
        loop {
            let Sender { flags, notifications, outgoing, .. } = self;
            let is_ready = || outgoing.may_write(flags.memory());
            sleep::sleep(flags, WAITING, notifications, sleep::LONGEST, is_ready)?;
            if self.outgoing.may_write(self.flags.memory()) {
                return Ok(());
            }
            self.check_claim()?;
        }
    }

    /// Whether the receiver is there, and this sender has its banks.
    #[track_caller]
    fn check_claim(&self) -> Result<(), MailboxError> {
        let at = self.geometry.claim_at(self.set);
        if claim_now(&self.segments, &self.mailbox, at)? == self.claim {
            return Ok(());
        }
        Err(MailboxError::Closed(label(&self.mailbox)))
    }

    /// Says who has claimed the bank set, and wakes the receiver.
    #[track_caller]
    fn say_hello(&mut self, mode: Mode) -> Result<(), MailboxError> {
        let Sender { ref mailbox, set, claim, .. } = *self;
        let number = self.number.0;
        let identity = identity(mailbox.name(), mailbox.generation(), set, claim);
        self.flags.write(IDENTITY, &identity.to_ne_bytes())?;
        let hello = Hello { claim, flags: number, mode }.encode();
        let at = self.geometry.claim_at(set) + HELLO;
        mailbox.write_notify(at, &hello).map_err(MailboxError::of_mailbox)
    }

    // ---- the end -------------------------------------------------------------------------------

    /// Waits up to `timeout` until the receiver has taken all frames, and gives the banks back.
    ///
    /// # Errors
    /// [`MailboxError::NotTaken`]; as [`send`](Self::send).
    #[track_caller]
    pub fn close(mut self, timeout: Duration) -> Result<(), MailboxError> {
        let at = self.geometry.claim_at(self.set);
        let awaited = self.mailbox.write(at + AWAITED, &self.claim.0.to_ne_bytes());
        awaited.map_err(MailboxError::of_mailbox)?;
        self.end()?;
        let deadline = Instant::now().checked_add(timeout);
        let released = || {
            let word = self.flags.memory().load(self.geometry.released_at(), Ordering::Acquire);
            word == self.claim.0
        };
        while !released() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(MailboxError::NotTaken(label(&self.mailbox)));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let longest = left.map_or(sleep::LONGEST, |left| left.min(sleep::LONGEST));
            sleep::sleep(&self.flags, WAITING, &self.notifications, longest, released)?;
            if !released() {
                claim_now(&self.segments, &self.mailbox, at)?;
            }
        }
        Ok(())
    }

    /// Says that no more frames come.
    #[track_caller]
    fn end(&mut self) -> Result<(), MailboxError> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(());
        }
        let done = self.claim.done(self.outgoing.next());
        let at = self.geometry.claim_at(self.set) + DONE;
        self.mailbox.signal(at, done).map_err(MailboxError::of_mailbox)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // A receiver that is gone needs no goodbye.
        let _ = self.end();
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("mailbox", &self.mailbox.name())
            .field("receiver", &self.receiver())
            .field("geometry", &self.geometry)
            .field("sent", &self.sent())
            .finish_non_exhaustive()
    }
}

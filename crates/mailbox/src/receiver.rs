//! [`Mailbox`]: where frames of any host arrive.

use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

use gossamer_segment::{Name, Notifications, Segment, SegmentError, Segments};
use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::error::MailboxError;
use crate::incoming::Arrival;
use crate::layout::{ASLEEP, Geometry};
use crate::senders::Senders;
use crate::sleep;
use crate::view::Frame;
use crate::wait::CpuWait;

/// Polls that find nothing between two looks at the claims, and between two polls of the lanes where
/// senders map the memory.
const LOOK_EVERY: u32 = 64;
const LANES_EVERY: u32 = 32;

/// Polls between two looks at the claims and two polls of the lanes, if frames come without pause.
pub(crate) const LOOK_AT_LAST: u32 = 1024;

/// Rounds of polls of a receiver that waits before it looks at the clock, and polls between two looks.
const SPINS: u32 = 16;
const POLLS_PER_CLOCK: u32 = 8;

/// How long a receiver that finds nothing looks on before it sleeps. A fiber lets others run meanwhile.
const AWAKE: Duration = Duration::from_micros(100);

/// The longest sleep while a fiber opens the flags of a sender.
const OPENING: Duration = Duration::from_millis(1);

/// A mailbox that this process exports: frames of any host arrive there. Dropping it closes it for its
/// senders.
///
/// | Receiver | Calls |
/// |---|---|
/// | a thread or fiber with nothing else to do | [`next`](Self::next), [`next_timeout`](Self::next_timeout) |
/// | a loop of its own | [`poll`](Self::poll) |
///
/// Frames of one sender come in the order in which it sent them; senders take turns. The thread that
/// exported the mailbox must poll or wait regularly, as any attached thread; a mailbox may be moved to
/// another thread.
///
/// # What a sender can do
/// Every host that may write to the segment can write anything there at any time, also into the banks
/// of other senders and as if it were one of them. The receiver ignores bytes that are not a frame, or
/// skips them with [`MailboxError::Malformed`]; the lengths in a [`Frame`] are checked. A layer that must
/// know who sent a frame has to authenticate the frame's contents.
pub struct Mailbox {
    segments: Segments,
    segment: Segment,
    notifications: Notifications,
    geometry: Geometry,
    senders: Senders,
    /// The private copy in which a frame with a checksum is checked and read.
    copy: SharedBytes,
    /// Polls that have found nothing since the last frame or look.
    idle: u32,
    /// Polls since the last look.
    polls: u32,
    cpu: CpuWait,
}

/// The outcome of a look for the next frame, with the number of the sender. Small, because each poll passes it
/// through several functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Frame(usize),
    /// What that sender has written is to be skipped.
    Malformed(usize),
}

impl Mailbox {
    pub(crate) fn new(
        segments: Segments,
        segment: Segment,
        geometry: Geometry,
        hello_within: Duration,
    ) -> Mailbox {
        Mailbox {
            segments,
            notifications: segment.notifications(),
            segment,
            geometry,
            senders: Senders::new(geometry, hello_within),
            copy: SharedBytes::heap(geometry.stride()),
            idle: 0,
            polls: 0,
            cpu: CpuWait::detected(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        self.segment.name()
    }

    /// Bytes that a frame has for arguments, payload and attachment.
    pub fn frame_bytes(&self) -> usize {
        self.geometry.body as usize
    }

    /// Senders that have announced themselves, as of the last check, which a poll that finds no frame
    /// makes now and then.
    pub fn senders(&self) -> usize {
        self.senders.active.len()
    }

    /// The segments of the rack that it was exported with.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The segment, to change its access or to pin it. Change the access only while there are no
    /// [`senders`](Self::senders) whose memory is not mapped: the change may refuse frames in flight, which are
    /// not sent again. The receiver then waits for them without end, and the sender's banks stay taken until its
    /// host is lost.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    // ---- receiving -----------------------------------------------------------------------------

    /// The next frame, if one has arrived. It never waits for a frame; a poll that finds a new sender
    /// opens that sender's flags, which takes an exchange with its host: in another fiber if the caller
    /// is a fiber, otherwise at once.
    ///
    /// # Errors
    /// [`MailboxError::Malformed`]; the frame is skipped.
    #[inline]
    #[track_caller]
    pub fn poll(&mut self) -> Result<Option<Frame<'_>>, MailboxError> {
        let found = self.find();
        self.open(found)
    }

    /// Waits for the next frame: parks the fiber, or blocks the thread. A thread polls for some time
    /// before, as its processor does best ([`CpuWait`]).
    ///
    /// # Errors
    /// As [`poll`](Self::poll); [`MailboxError::Segment`] once the rack has ended.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend its items")]
    #[inline]
    #[track_caller]
    pub fn next(&mut self) -> Result<Frame<'_>, MailboxError> {
        loop {
            match self.wait(None)? {
                // Without a deadline, it waits until it has found something.
                Found::Nothing => {}
                Found::Frame(number) => return Ok(self.view(number)),
                Found::Malformed(number) => return Err(self.skip(number)),
            }
        }
    }

    /// As [`next`](Self::next), for up to `timeout`: `None` if no frame has come by then.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[track_caller]
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Frame<'_>>, MailboxError> {
        // A timeout beyond the range of the clock means no timeout.
        let found = self.wait(Instant::now().checked_add(timeout))?;
        self.open(found)
    }

    /// The frame or the error that a caller gets for `found`.
    #[inline(always)]
    #[track_caller]
    fn open(&mut self, found: Found) -> Result<Option<Frame<'_>>, MailboxError> {
        match found {
            Found::Nothing => Ok(None),
            Found::Frame(number) => Ok(Some(self.view(number))),
            Found::Malformed(number) => Err(self.skip(number)),
        }
    }

    #[inline(always)]
    fn view(&mut self, number: usize) -> Frame<'_> {
        Frame::new(&mut self.senders, self.segment.memory(), &self.copy, number)
    }

    /// Looks for a frame of each sender, round robin, from the one behind the last that had anything.
    #[inline(always)]
    #[track_caller]
    fn find(&mut self) -> Found {
        self.polls += 1;
        if self.polls >= LOOK_AT_LAST {
            self.segments.poll();
            self.look();
        }
        if let [_] = &self.senders.active[..] {
            // Most mailboxes have one: without the arithmetic of turns, which is a quarter of a poll.
            return match self.take(0) {
                Found::Nothing => self.look_after_lanes(),
                found => found,
            };
        }
        let count = self.senders.active.len();
        let first = self.senders.cursor;
        for turn in 0..count {
            let number = first + turn;
            let number = if number < count { number } else { number - count };
            let found = self.take(number);
            if found != Found::Nothing {
                // Also behind what is skipped, of which there may be no end.
                self.senders.cursor = if number + 1 < count { number + 1 } else { 0 };
                return found;
            }
        }
        self.note_idle();
        Found::Nothing
    }

    /// The only sender has no frame: polls the lanes, if that is due, and looks again if they have brought
    /// anything.
    #[inline]
    #[track_caller]
    fn look_after_lanes(&mut self) -> Found {
        let has_moved = self.note_idle();
        match &self.senders.active[..] {
            [_] if has_moved => self.take(0),
            _ => Found::Nothing,
        }
    }

    /// Looks for a frame of the sender `number`.
    #[inline(always)]
    fn take(&mut self, number: usize) -> Found {
        let incoming = &mut self.senders.active[number].incoming;
        match incoming.poll(self.segment.memory(), &self.copy) {
            Arrival::Nothing => Found::Nothing,
            Arrival::Frame => {
                self.idle = 0;
                Found::Frame(number)
            }
            Arrival::Malformed => Found::Malformed(number),
        }
    }

    /// Skips what the sender `number` has written.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn skip(&mut self, number: usize) -> MailboxError {
        let sender = &self.senders.active[number];
        let (host, reason) = (sender.host, sender.incoming.malformed());
        self.senders.advance(number);
        MailboxError::Malformed { host, reason }
    }

    /// Counts a poll that found nothing, and polls the lanes if that is due. Returns whether they brought
    /// anything.
    #[inline]
    #[track_caller]
    fn note_idle(&mut self) -> bool {
        self.idle += 1;
        if self.senders.owes_wakes {
            self.senders.wake(&self.segment);
        }
        let is_due = self.senders.brings_lanes || self.idle.is_multiple_of(LANES_EVERY);
        let has_moved = is_due && self.segments.poll();
        if self.idle >= LOOK_EVERY {
            self.look();
        }
        has_moved
    }

    /// Looks at the claims.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn look(&mut self) {
        (self.idle, self.polls) = (0, 0);
        self.senders.look(&self.segments, &self.segment);
        if self.senders.cursor >= self.senders.active.len() {
            self.senders.cursor = 0;
        }
    }

    /// Waits up to `deadline`; finds nothing if that passes first.
    #[inline]
    #[track_caller]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Found, SegmentError> {
        match self.find() {
            Found::Nothing => self.wait_on(deadline),
            found => Ok(found),
        }
    }

    /// Looks for the next frame of the only sender, until it has come or something else is due; elsewhere
    /// lets a moment pass. The spin hint is right in front of the load, so that the processor does not
    /// execute that long before.
    #[inline(always)]
    #[track_caller]
    fn spin(&mut self) -> Found {
        let [sender] = &mut self.senders.active[..] else {
            primitive::sync::spin_hint();
            return self.find();
        };
        let (incoming, memory) = (&mut sender.incoming, self.segment.memory());
        let looks =
            if self.senders.brings_lanes { 1 } else { LANES_EVERY - self.idle % LANES_EVERY };
        for _ in 1..looks {
            primitive::sync::spin_hint();
            if incoming.has_come(memory) {
                self.idle = 0;
                return match incoming.take(memory, &self.copy) {
                    Arrival::Nothing => Found::Nothing,
                    Arrival::Frame => Found::Frame(0),
                    Arrival::Malformed => Found::Malformed(0),
                };
            }
        }
        self.idle += looks - 1;
        primitive::sync::spin_hint();
        self.find()
    }

    /// The rest of [`wait`](Self::wait).
    #[inline(never)]
    #[track_caller]
    fn wait_on(&mut self, deadline: Option<Instant>) -> Result<Found, SegmentError> {
        // Without the clock, which costs as much as a frame. A fiber lets others run instead.
        let spins = if fiber::in_fiber() { 0 } else { SPINS };
        for _ in 0..spins {
            let found = self.spin();
            if found != Found::Nothing {
                return Ok(found);
            }
        }
        fiber::check_may_wait("the wait for a frame", Location::caller());
        // One `wfe` can last 100 us, so the deadline is checked after each.
        let polls = if self.cpu == CpuWait::Wfe { 1 } else { POLLS_PER_CLOCK };
        loop {
            let awake = Instant::now();
            loop {
                for _ in 0..polls {
                    let found = self.find();
                    if found != Found::Nothing {
                        return Ok(found);
                    }
                    self.wait_a_moment();
                }
                let now = Instant::now();
                if deadline.is_some_and(|deadline| now >= deadline) {
                    return Ok(Found::Nothing);
                }
                if self.geometry.may_sleep && now - awake >= AWAKE {
                    break;
                }
            }
            let found = self.sleep(deadline)?;
            if found != Found::Nothing {
                return Ok(found);
            }
        }
    }

    /// Waits for some microseconds at most, or with `wfe` for up to 100.
    fn wait_a_moment(&self) {
        if fiber::in_fiber() {
            return fiber::yield_to_worker();
        }
        // A frame that comes through a lane comes while this thread polls: no processor waits for that.
        let [sender] = &self.senders.active[..] else { return primitive::sync::spin_hint() };
        if self.senders.brings_lanes {
            return primitive::sync::spin_hint();
        }
        let word = self.segment.memory().word(sender.incoming.watched());
        let now = word.load(Ordering::Relaxed);
        // Or a frame has come since the last look.
        if now != sender.incoming.tag() {
            self.cpu.wait(word, now);
        }
    }

    /// Sleeps until a frame or a sender comes.
    #[track_caller]
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<Found, SegmentError> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A fiber that has opened the flags of a sender does not wake this one.
        let longest = if self.senders.are_opening() { OPENING } else { sleep::LONGEST };
        let longest = left.map_or(longest, |left| left.min(longest));
        let Mailbox { segments, segment, notifications, copy, senders, .. } = self;
        let mut found = None;
        let is_ready = || {
            // A sender may have said hello before.
            senders.look(segments, segment);
            let ready = senders.active.iter_mut().position(|sender| {
                sender.incoming.poll(segment.memory(), copy) != Arrival::Nothing
            });
            found = ready;
            ready.is_some()
        };
        sleep::sleep(segment, ASLEEP, notifications, longest, is_ready)?;
        match found {
            Some(ready) => self.senders.cursor = ready,
            None => self.look(),
        }
        Ok(self.find())
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("name", &self.name())
            .field("geometry", &self.geometry)
            .field("senders", &self.senders())
            .finish_non_exhaustive()
    }
}

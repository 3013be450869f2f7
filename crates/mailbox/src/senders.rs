//! [`Senders`]: who has which bank set of a mailbox, as its receiver sees it.
//!
//! ```text
//!   free --claim, hello--> active --done and all taken, or the host is lost--> free
//!     ^                       |
//!     +---- host is lost -----+ (also between claim and hello; there also: done, or no hello in time)
//! ```

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use gossamer_segment::{HostId, RemoteSegment, Segment, SegmentError, Segments};
use parking_lot::Mutex;
use primitive::sync::Ordering;

use crate::claim::{AWAITED, Claim, DONE, Hello, SLEEPS_FOR, flags_name, identity};
use crate::frame::Mode;
use crate::incoming::Incoming;
use crate::layout::{Geometry, IDENTITY, WAITING, WORD, flag_at};
use crate::sleep;

/// A sender that has said hello.
pub(crate) struct Active {
    set: u32,
    claim: Claim,
    pub(crate) host: HostId,
    pub(crate) mode: Mode,
    pub(crate) incoming: Incoming,
    flags: Flags,
    /// Flags set that may not have been sent.
    held: u32,
    /// When `held` reaches this, the flag is sent at once, so that the sender always has a bank to write.
    held_most: u32,
    /// Whether some flag was not written that should have been.
    is_owed: bool,
    /// The last [`SLEEPS_FOR`] that the sender was woken for.
    answered: u64,
}

/// What a fiber has opened, which keeps this until it ends.
type Opened = Arc<Mutex<Option<Flags>>>;

/// What is known of a bank set that no sender is active in.
#[derive(Default)]
struct Idle {
    /// The last opening of a sender's flags here, which lives as long as its fiber.
    opening: Weak<Mutex<Option<Flags>>>,
    /// The claim that has come without a hello, and since when.
    unsaid: Option<(Claim, Instant)>,
}

impl Idle {
    /// Whether this claim, which has no hello, has had none for longer than `limit`.
    fn is_overdue(&mut self, claim: Claim, limit: Duration) -> bool {
        match self.unsaid {
            Some((known, since)) if known == claim => since.elapsed() >= limit,
            _ => {
                self.unsaid = Some((claim, Instant::now()));
                limit.is_zero()
            }
        }
    }
}

/// The flags of a sender.
enum Flags {
    /// A fiber opens them.
    Opening(Opened),
    Open(RemoteSegment),
    /// The sender has gone, or says that they are where they are not.
    Gone,
}

impl Active {
    #[track_caller]
    fn new(
        (segments, segment): (&Segments, &Segment),
        geometry: Geometry,
        (set, host): (u32, HostId),
        hello: Hello,
    ) -> Option<Self> {
        let Hello { claim, flags, mode } = hello;
        let incoming = Incoming::new(geometry, set, claim.epoch(), mode);
        let identity = identity(segment.name(), segment.generation(), set, claim);
        let flags = Flags::begin_open(segments, (host, flags), geometry.flags_bytes(), identity)?;
        let is_owed = matches!(flags, Flags::Opening(_));
        let held_most = geometry.banks / 2;
        Some(Active {
            set,
            claim,
            host,
            mode,
            incoming,
            flags,
            held: 0,
            held_most,
            is_owed,
            answered: 0,
        })
    }

    /// Whether the sender, whose claim is at byte `at`, waits for its release.
    fn is_awaited(&self, segment: &Segment, at: usize) -> bool {
        segment.memory().load(at + AWAITED, Ordering::Acquire) == self.claim.0
    }

    /// The next frame was taken, or skipped; true if the flag of a bank was set, whose sender may sleep.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn advance(&mut self) -> bool {
        let emptied = self.incoming.advance();
        if emptied.is_none()
            && let Some(bank) = self.incoming.ending_bank()
        {
            // The line of the flag is then here when it is set, and no later store waits for it.
            self.flags.prefetch(bank);
        }
        match emptied {
            Some((bank, emptied)) => self.set_flag(bank, emptied),
            None => return false,
        }
        true
    }

    /// Sets the flag of a bank that was emptied.
    #[inline(never)]
    #[track_caller]
    fn set_flag(&mut self, bank: u32, emptied: u64) {
        // What waits must not do so while a panic unwinds the stack.
        if self.is_owed || std::thread::panicking() {
            self.is_owed = true;
        } else {
            if self.held > 0 && !self.flags.have_unsent() {
                self.held = 0;
            }
            self.held += 1;
            let is_urgent = self.held >= self.held_most;
            self.is_owed = !self.flags.set(bank, emptied, is_urgent);
        }
    }

    /// Writes the flags that are owed, as far as the sender takes them.
    #[track_caller]
    fn settle(&mut self) {
        self.flags.take_opened();
        if self.is_owed && !matches!(self.flags, Flags::Opening(_)) {
            let flags = &mut self.flags;
            self.is_owed =
                !self.incoming.emptied().all(|(bank, emptied)| flags.set(bank, emptied, true));
            self.flags.wake();
        }
    }

    /// Wakes the sender if its memory is not mapped and `word`, that of its claim, says that it sleeps for a
    /// frame which it may write now. Looks at that whenever it looks at the claim: the flag may have left
    /// before the sender fell asleep.
    #[track_caller]
    fn wake_if_unmapped(&mut self, word: u64) {
        let Some(frame) = self.claim.frame_of(word) else { return };
        let is_due = word != self.answered && !self.is_owed && self.incoming.has_room_for(frame);
        if is_due && self.flags.notify_unmapped() {
            self.answered = word;
        }
    }
}

impl Flags {
    /// Opens the flags of a sender, which is an exchange with its host: in a fiber of its own, if the
    /// caller is one; `None` if there is no stack for it.
    #[track_caller]
    fn begin_open(
        segments: &Segments,
        (host, number): (HostId, u64),
        len: usize,
        identity: u64,
    ) -> Option<Flags> {
        let segments = segments.clone();
        let open = move || {
            let flags = segments.options().host(host).open(&flags_name(number)).ok()?;
            let is_it =
                flags.len() >= len && flags.at_byte::<u64>(IDENTITY).read().ok()? == identity;
            is_it.then_some(flags)
        };
        if !fiber::in_fiber() {
            return Some(open().map_or(Flags::Gone, Flags::Open));
        }
        let opened = Opened::default();
        let there = opened.clone();
        let opening = fiber::Builder::new().spawn_local(move || {
            let flags = open().map_or(Flags::Gone, Flags::Open);
            *there.lock() = Some(flags);
        });
        opening.ok().map(|_detached| Flags::Opening(opened))
    }

    fn take_opened(&mut self) {
        let Flags::Opening(opened) = self else { return };
        let opened = opened.lock().take();
        if let Some(opened) = opened {
            *self = opened;
        }
    }

    /// Asks the processor for the line of the flag of a bank.
    #[inline(never)]
    fn prefetch(&self, bank: u32) {
        if let Flags::Open(flags) = self {
            flags.prefetch_write(flag_at(bank));
        }
    }

    /// Sets the flag of a bank; the sender is then to be woken. Where memory is not mapped, a flag that is not
    /// urgent is no message of its own: it leaves with the next one, or the next poll. A sender that takes
    /// nothing must not stop the receiver of all others: false if the flag was not written because this
    /// would have to wait.
    #[track_caller]
    fn set(&mut self, bank: u32, emptied: u64, is_urgent: bool) -> bool {
        let mut is_set = true;
        self.with_open(|flags| {
            is_set = flags.try_signal(flag_at(bank), emptied, is_urgent)?;
            Ok(())
        });
        is_set
    }

    /// Whether a flag that was not urgent may still wait for the next message.
    #[track_caller]
    fn have_unsent(&self) -> bool {
        matches!(self, Flags::Open(flags) if !flags.is_mapped() && flags.has_unsent())
    }

    /// Sets a word that the sender waits for, and wakes it, unless this would have to wait.
    #[track_caller]
    fn set_and_wake(&mut self, at: usize, word: u64) {
        self.with_open(|flags| match flags.is_mapped() {
            true => flags.signal(at, word),
            false => flags.try_write_notify(at, &word.to_ne_bytes()).map(drop),
        });
        self.wake();
    }

    /// Notifies the sender, if its memory is not mapped; false if this would have to wait.
    #[track_caller]
    fn notify_unmapped(&mut self) -> bool {
        let mut is_notified = true;
        self.with_open(|flags| {
            // In mapped memory `wake` reads whether it sleeps; the claim is not trusted.
            if !flags.is_mapped() {
                is_notified = flags.try_write_notify(0, &[])?;
            }
            Ok(())
        });
        is_notified
    }

    /// Whether [`set_and_wake`](Self::set_and_wake) would write, or never will.
    #[track_caller]
    fn can_set(&self) -> bool {
        match self {
            Flags::Opening(_) => false,
            Flags::Open(flags) => flags.is_mapped() || flags.can_notify(WORD),
            Flags::Gone => true,
        }
    }

    /// Wakes the sender, if its memory is mapped and it sleeps.
    #[track_caller]
    fn wake(&mut self) {
        self.with_open(|flags| match flags.is_mapped() {
            true => sleep::wake(flags, WAITING),
            false => Ok(()),
        });
    }

    #[inline]
    fn with_open(&mut self, operation: impl FnOnce(&RemoteSegment) -> Result<(), SegmentError>) {
        let Flags::Open(flags) = self else { return };
        if operation(flags).is_err() {
            // The sender has dropped them, or its host is lost.
            *self = Flags::Gone;
        }
    }
}

/// What the sender that has bank set `set` says it sleeps for.
fn sleeps_for(geometry: &Geometry, set: u32, segment: &Segment) -> u64 {
    segment.memory().load(geometry.claim_at(set) + SLEEPS_FOR, Ordering::Acquire)
}

/// Who has which bank set.
pub(crate) struct Senders {
    geometry: Geometry,
    /// How long a claim may be without a hello.
    hello_within: Duration,
    /// By bank set.
    idle: Box<[Idle]>,
    pub(crate) active: Vec<Active>,
    /// Whether a flag was set whose sender may sleep. The fence that it takes to know, or the message, can
    /// wait until there is no frame.
    pub(crate) owes_wakes: bool,
    /// Whether frames of some sender arrive only while the lanes are polled.
    pub(crate) brings_lanes: bool,
    /// The one whose frame is looked for first.
    pub(crate) cursor: usize,
}

impl Senders {
    pub(crate) fn new(geometry: Geometry, hello_within: Duration) -> Self {
        let idle = (0..geometry.senders).map(|_| Idle::default()).collect();
        Self {
            geometry,
            hello_within,
            idle,
            active: Vec::new(),
            owes_wakes: false,
            brings_lanes: false,
            cursor: 0,
        }
    }

    /// Whether a fiber opens the flags of some sender.
    pub(crate) fn are_opening(&self) -> bool {
        self.active.iter().any(|active| matches!(active.flags, Flags::Opening(_)))
    }

    /// The next frame of `active[number]` was taken, or skipped.
    #[track_caller]
    pub(crate) fn advance(&mut self, number: usize) {
        self.owes_wakes |= self.active[number].advance();
    }

    /// Wakes the senders that sleep.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn wake(&mut self, segment: &Segment) {
        self.owes_wakes = false;
        for active in &mut self.active {
            active.flags.wake();
            active.wake_if_unmapped(sleeps_for(&self.geometry, active.set, segment));
        }
    }

    /// Looks at all claims: takes up senders that have come, and frees what those had that are gone.
    #[track_caller]
    pub(crate) fn look(&mut self, segments: &Segments, segment: &Segment) {
        if self.owes_wakes {
            self.wake(segment);
        }
        for set in 0..self.geometry.senders {
            let at = self.geometry.claim_at(set);
            let claim = Claim(segment.memory().load(at, Ordering::Acquire));
            let known = self.active.iter().position(|active| active.set == set);
            if let Some(known) = known {
                let active = &mut self.active[known];
                active.settle();
                active.wake_if_unmapped(sleeps_for(&self.geometry, set, segment));
                // Everything that was written before is there once this is.
                let done = segment.memory().load(at + DONE, Ordering::Acquire);
                let is_done = done == active.claim.frame_word(active.incoming.next());
                let is_taken_back = active.claim != claim;
                let is_lost = segments.check_peer(active.host).is_err();
                // A sender that waits for its release keeps its banks until it can be told.
                let is_told = || !active.is_awaited(segment, at) || active.flags.can_set();
                if is_taken_back || is_lost || is_done && is_told() {
                    self.free(known, claim, segment);
                }
            } else if let Some(host) = claim.holder() {
                self.take_up(segments, segment, set, claim, host);
            }
        }
        self.brings_lanes = self.active.iter().any(|active| active.mode != Mode::Mapped);
    }

    /// A bank set is claimed. A sender that claims it again and again has one opening at a time.
    #[track_caller]
    fn take_up(
        &mut self,
        segments: &Segments,
        segment: &Segment,
        set: u32,
        claim: Claim,
        host: HostId,
    ) {
        let (at, memory) = (self.geometry.claim_at(set), segment.memory());
        let free = || memory.store(at, claim.freed().0, Ordering::Release);
        if segments.check_peer(host).is_err() {
            return free();
        }
        // First: a hello that was said before is there then.
        let has_given_up = memory.load(at + DONE, Ordering::Acquire) == claim.frame_word(0);
        let idle = &mut self.idle[set as usize];
        let Some(hello) = Hello::read(memory, at, claim) else {
            if has_given_up || idle.is_overdue(claim, self.hello_within) {
                free();
            }
            return;
        };
        if idle.opening.strong_count() > 0 {
            return;
        }
        let active = Active::new((segments, segment), self.geometry, (set, host), hello);
        // The next look tries again.
        let Some(active) = active else { return };
        if let Flags::Opening(opened) = &active.flags {
            idle.opening = Arc::downgrade(opened);
        }
        self.active.push(active);
    }

    /// Frees the bank set of `active[number]`, unless another sender has claimed it.
    #[track_caller]
    fn free(&mut self, number: usize, now: Claim, segment: &Segment) {
        let active = self.active.remove(number);
        let at = self.geometry.claim_at(active.set);
        let is_awaited = active.is_awaited(segment, at);
        let Active { claim, mut flags, .. } = active;
        if claim == now {
            segment.memory().store(at, now.freed().0, Ordering::Release);
        }
        // A sender that does not wait has dropped its flags.
        if is_awaited {
            flags.set_and_wake(self.geometry.released_at(), claim.0);
        }
    }
}

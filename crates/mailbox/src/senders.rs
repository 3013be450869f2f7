//! [`Senders`]: who has which bank set of a mailbox, as its receiver sees it.
//!
//! ```text
//!   free --claim, hello--> active --done and all taken, or the host is lost--> free
//!     ^                       |
//!     +---- host is lost -----+ (also between claim and hello; there also: done, or no hello in time)
//! ```

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use gossamer_segment::{HostId, Segment, Segments};
use parking_lot::Mutex;
use primitive::sync::Ordering;

use crate::active::Active;
use crate::claim::{Claim, DONE, Hello, SLEEPS_FOR};
use crate::frame::Mode;
use crate::layout::Geometry;
use crate::peer_flags::{AGAIN, Flags};

/// What is known of a bank set that no sender is active in.
#[derive(Default)]
struct Idle {
    /// The last opening of a sender's flags here, which lives as long as its fiber.
    opening: Weak<Mutex<Option<Flags>>>,
    /// The claim that has come without a hello, and since when.
    unsaid: Option<(Claim, Instant)>,
    /// When its flags could not be opened last.
    failed: Option<Instant>,
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
        let has_just_failed = idle.failed.is_some_and(|since| since.elapsed() < AGAIN);
        if idle.opening.strong_count() > 0 || has_just_failed {
            return;
        }
        let active = Active::new((segments, segment), self.geometry, (set, host), hello);
        idle.failed = active.is_none().then(Instant::now);
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

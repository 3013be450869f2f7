//! Plays: tests in which several threads of a rack take part, with one script for each. For the suite of
//! segments and for those of layers above.
//!
//! Player `n` is a thread, attached as thread `n` of host `n`; in a rack with fewer hosts than players, the
//! last players share a host. [`Player::meet`] is a barrier of all players. A player polls while it waits
//! for others, as runtime threads do, because revocation and transports wait for polls.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use transport_api::conformance::{Make, Rack, within};

use crate::{Attached, Segments};

/// How long a test may take before it counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Runs `test`, and fails if it takes longer than [`DEADLINE`].
pub fn bounded(test: impl FnOnce() + Send + 'static) {
    within(DEADLINE, test);
}

/// State that the players of a play share.
#[derive(Default)]
struct Stage {
    /// Arrivals at meetings, of all players together.
    arrived: AtomicUsize,
    /// Players whose scripts have ended.
    ended: AtomicUsize,
    has_failed: AtomicBool,
}

/// A thread of a host that takes part in a test.
pub struct Player {
    /// Those of its host.
    pub segments: Segments,
    /// The thread, which is attached.
    pub attached: Attached,
    stage: Arc<Stage>,
    players: usize,
    meetings: Cell<usize>,
}

/// The code that a player runs.
pub type Script = Box<dyn FnOnce(&Player) + Send>;

/// Boxes a script, so that scripts of different types can be in one list.
pub fn script(script: impl FnOnce(&Player) + Send + 'static) -> Script {
    Box::new(script)
}

/// Runs `scripts` on a rack that `make` makes: script `n` on thread `n` of host `n`, or of the last
/// host if the rack has fewer.
pub fn play<const N: usize>(make: Make, scripts: [Script; N]) {
    bounded(move || play_in(&make(N as u32, N as u32), scripts));
}

/// As [`play`], on an existing rack.
pub fn play_in<const N: usize>(rack: &Rack, scripts: [Script; N]) {
    let hosts = places(rack);
    let stage = Arc::new(Stage::default());
    thread::scope(|scope| {
        for (number, script) in scripts.into_iter().enumerate() {
            let segments = hosts[number.min(hosts.len() - 1)].clone();
            let stage = stage.clone();
            scope.spawn(move || {
                let _failure = NoteFailure(stage.clone());
                let attached = segments.attach(number as u32).expect("a thread of the rack");
                let meetings = Cell::new(0);
                let player = Player { segments, attached, stage, players: N, meetings };
                script(&player);
                player.stage.ended.fetch_add(1, Ordering::AcqRel);
                // The end is a meeting, too.
                player.begin_meeting();
                // Other players may still need this thread's polls.
                player.until("the end of the others", || player.have_ended(N));
            });
        }
    });
}

/// The segments of each host of a rack.
pub fn places(rack: &Rack) -> Vec<Segments> {
    rack.hosts.iter().map(|host| Segments::new(host.clone())).collect()
}

/// Marks the play as failed if this player panics, so that the others stop waiting.
struct NoteFailure(Arc<Stage>);

impl Drop for NoteFailure {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Player {
    /// Does `step` until it returns true, and polls in between.
    ///
    /// # Panics
    /// If that takes half of [`DEADLINE`], or another player has failed.
    pub fn until(&self, what: &str, mut step: impl FnMut() -> bool) {
        let start = Instant::now();
        while !step() {
            let has_failed = self.stage.has_failed.load(Ordering::Relaxed);
            assert!(!has_failed, "another player failed while this one waited for {what}");
            assert!(start.elapsed() < DEADLINE / 2, "waited in vain for {what}");
            if !self.attached.poll() {
                thread::yield_now();
            }
        }
    }

    /// Waits until every player has come to as many meetings as this one.
    pub fn meet(&self) {
        let number = self.begin_meeting();
        self.until("the other players", || self.has_met(number));
    }

    /// Comes to the next meeting, and goes on; its number.
    pub fn begin_meeting(&self) -> usize {
        let number = self.meetings.get() + 1;
        self.meetings.set(number);
        self.stage.arrived.fetch_add(1, Ordering::AcqRel);
        number
    }

    /// Whether all players have come to this meeting.
    pub fn has_met(&self, number: usize) -> bool {
        self.stage.arrived.load(Ordering::Acquire) >= number * self.players
    }

    /// Whether another player has arrived at the next meeting of this one.
    pub fn is_awaited(&self) -> bool {
        self.stage.arrived.load(Ordering::Acquire) > self.meetings.get() * self.players
    }

    /// Waits until the scripts of all other players have ended.
    pub fn outlast_others(&self) {
        self.until("the others", || self.others_have_ended());
    }

    /// Whether the scripts of all other players have ended.
    pub fn others_have_ended(&self) -> bool {
        self.have_ended(self.players - 1)
    }

    fn have_ended(&self, players: usize) -> bool {
        self.stage.ended.load(Ordering::Acquire) >= players
    }

    /// Polls for 20 milliseconds, in which a forbidden effect would show.
    pub fn linger(&self) {
        let start = Instant::now();
        self.until("a moment", || start.elapsed() > Duration::from_millis(20));
    }
}

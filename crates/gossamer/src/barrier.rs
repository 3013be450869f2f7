//! [`Barrier`]: fibers of any hosts that wait for each other.

use std::panic::Location;

use fiber::FiberId;
use serde::{Deserialize, Serialize};
use trust_core::{Chain, Trust};

/// The state of a barrier, on the thread where it was made: the fibers that wait.
struct State {
    parties: usize,
    waiting: Vec<FiberId>,
    /// How often the barrier has opened.
    round: u64,
}

impl State {
    /// Adds an arriving fiber. The last one ends the round.
    fn come(&mut self, fiber: u64) -> Come {
        let round = self.round;
        if self.waiting.len() + 1 < self.parties {
            self.waiting.push(FiberId::from_bits(fiber));
            return Come { round, opened: false };
        }
        self.round += 1;
        self.waiting.drain(..).for_each(fiber::unpark);
        Come { round, opened: true }
    }
}

#[derive(Serialize, Deserialize)]
struct Come {
    round: u64,
    opened: bool,
}

/// A barrier for a fixed number of fibers on any threads of the rack. Clone it for each fiber, or
/// send it as an argument.
///
/// It does not know who its parties are. If one ends without coming, because it panics or its host is lost,
/// the others wait until the rack ends. For fibers that are to end together, use a [`Team`](crate::Team),
/// whose [`barrier`](crate::Team::barrier) fails when a member has ended or its host is lost.
///
/// ```
/// # gossamer::Rack::new().threads(2).run(|| {
/// let barrier = gossamer::Barrier::new(3);
/// let fibers: Vec<_> = gossamer::threads()
///     .map(|thread| gossamer::spawn_on_with(thread, |b: gossamer::Barrier| b.wait(), barrier.clone()))
///     .collect();
/// let mut last = u32::from(barrier.wait());
/// for fiber in fibers {
///     last += u32::from(fiber.join().unwrap());
/// }
/// assert_eq!(last, 1);
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Barrier(Trust<State>);

impl Barrier {
    /// A barrier that opens when `parties` fibers wait at it. Its state lives on the current
    /// thread.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[must_use]
    #[track_caller]
    pub fn new(parties: usize) -> Self {
        let state = State { parties, waiting: Vec::new(), round: 0 };
        Barrier(trust_core::local_trustee().entrust(state))
    }

    /// Waits until all parties wait; returns true to the one that arrived last. The barrier can be
    /// used again at once.
    ///
    /// # Panics
    /// Outside a fiber of a rack, in delegated context, and when the barrier's host is lost. While
    /// the fiber unwinds, where another panic would end the process, a wait that cannot succeed
    /// returns false instead: in a destructor, after the rack has ended.
    #[track_caller]
    pub fn wait(&self) -> bool {
        trust_core::check_may_wait("`Barrier::wait`", Location::caller());
        if self.0.is_local() {
            return self.wait_here();
        }
        let waiting =
            self.0.trustee().spawn_with(|barrier: Barrier| barrier.wait_here(), self.clone());
        match waiting.join() {
            Ok(came_last) => came_last,
            Err(_) if std::thread::panicking() => false,
            Err(error) => panic!("cannot wait at the barrier: {}", Chain(&error)),
        }
    }

    /// Waits, on the thread that has the state of the barrier.
    #[track_caller]
    fn wait_here(&self) -> bool {
        let me = fiber::current().expect("fibers wait at barriers").to_bits();
        let come = self.0.apply_with(|state, me| state.come(me), me);
        let mut wait = fiber::Wait::at(Location::caller());
        while !come.opened && self.0.apply(|state| state.round) == come.round {
            wait.explain(|| "the other fibers of a barrier");
            if !fiber::park_or_give_up() {
                break;
            }
        }
        come.opened
    }
}

//! [`Reuse`]: when nothing runs in a piece of memory any more, so that it can hold other code.
//!
//! A thread that runs jams (a *runner*) looks a jam up, and runs it, between [`Runner::enter`] and
//! the drop of the guard. Whoever takes a jam out of every place where it can be looked up hands its
//! memory to [`Reuse::retire`], and gets it back from [`Reuse::reclaim`] once every runner that was
//! inside then has left:
//!
//! ```text
//!   runner                               evicting thread
//!   turn + 1 (odd: inside)   (release)   unlink the jam
//!   light barrier                        heavy barrier
//!   look up, run                         read every runner's turn; those that are odd
//!   turn + 1 (even: outside) (release)     must change             (acquire)
//! ```
//!
//! Of the two barriers one sees the other: either the runner finds the jam unlinked, or the evicting
//! thread finds the runner inside. The light one costs nothing where the system has `membarrier`,
//! which makes the heavy one a barrier of every thread of the process; elsewhere both are full fences.
//! A busy path pays two plain stores to a line of its own.
//!
//! Rules:
//! 1. Only its own thread writes a runner's turn. Nested runs of a thread are one turn.
//! 2. What is retired cannot be found by a lookup that begins later.
//! 3. The turn of a thread that has ended is even.

#[cfg(not(loom))]
#[allow(unsafe_code)]
pub(crate) mod barrier;

use std::sync::Arc;

use primitive::CachePadded;
use primitive::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// The word of one runner: odd while it is inside.
type Turn = CachePadded<AtomicU64>;

/// What waits for runners to leave, and the runners.
pub struct Reuse<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    runners: Vec<Arc<Turn>>,
    retired: Vec<Retired<T>>,
}

/// Something retired, with the runners that were inside then, and their turns.
struct Retired<T> {
    inside: Vec<(Arc<Turn>, u64)>,
    item: T,
}

/// A thread that runs jams.
pub struct Runner {
    turn: Arc<Turn>,
}

/// A runner is inside while this lives.
pub struct Inside<'a> {
    turn: &'a AtomicU64,
    /// Whether this is the outermost of nested runs.
    is_outermost: bool,
}

impl<T> Default for Reuse<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Reuse<T> {
    /// Without runners.
    pub fn new() -> Self {
        #[cfg(not(loom))]
        barrier::prepare();
        Self { state: Mutex::new(State { runners: Vec::new(), retired: Vec::new() }) }
    }

    /// A new runner, for the calling thread.
    pub fn runner(&self) -> Runner {
        let turn = Arc::new(CachePadded::new(AtomicU64::new(0)));
        self.state().runners.push(turn.clone());
        Runner { turn }
    }

    /// The thread of `runner` ends.
    pub fn leave(&self, runner: &Runner) {
        self.state().runners.retain(|turn| !Arc::ptr_eq(turn, &runner.turn));
    }

    /// Takes `item`, which no later lookup finds, until no runner uses it.
    pub fn retire(&self, item: T) {
        self.retire_behind(heavy_barrier, item);
    }

    fn retire_behind(&self, heavy_barrier: fn() -> bool, item: T) {
        let mut state = self.state();
        if !heavy_barrier() {
            // Which runners are inside cannot be told, so it is kept, as by one that never leaves.
            let unknown = Arc::new(CachePadded::new(AtomicU64::new(1)));
            state.retired.push(Retired { inside: vec![(unknown, 1)], item });
            return;
        }
        let turn_of = |turn: &Arc<Turn>| (turn.clone(), turn.load(Ordering::Acquire));
        let inside = state.runners.iter().map(turn_of).filter(|(_, turn)| turn % 2 == 1).collect();
        state.retired.push(Retired { inside, item });
    }

    /// Hands back what no runner uses any more.
    pub fn reclaim(&self, mut reclaimed: impl FnMut(T)) {
        let mut state = self.state();
        let mut kept = Vec::new();
        for mut retired in state.retired.drain(..) {
            retired.inside.retain(|(runner, turn)| runner.load(Ordering::Acquire) == *turn);
            if retired.inside.is_empty() {
                reclaimed(retired.item);
            } else {
                kept.push(retired);
            }
        }
        state.retired = kept;
    }

    /// What has been retired and not reclaimed.
    pub fn waiting(&self) -> usize {
        self.state().retired.len()
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Runner {
    /// Begins a run, or one that is nested in another of this thread. What is looked up before the
    /// guard is dropped may be used until then.
    #[inline(always)]
    pub fn enter(&self) -> Inside<'_> {
        // Rule 1: a plain load and store, since no other thread writes it.
        let turn = self.turn.load(Ordering::Relaxed);
        let is_outermost = turn.is_multiple_of(2);
        if is_outermost {
            // Release, since the evicting thread may see this instead of the end of the run before.
            self.turn.store(turn + 1, Ordering::Release);
            light_barrier();
        }
        Inside { turn: &self.turn, is_outermost }
    }

    /// Whether the thread is inside.
    pub fn is_inside(&self) -> bool {
        self.turn.load(Ordering::Relaxed) % 2 == 1
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_outermost {
            let turn = self.turn.load(Ordering::Relaxed);
            self.turn.store(turn + 1, Ordering::Release);
        }
    }
}

#[inline(always)]
fn light_barrier() {
    #[cfg(not(loom))]
    barrier::light();
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

fn heavy_barrier() -> bool {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    return barrier::heavy();
    #[cfg(loom)]
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn reclaimed(reuse: &Reuse<u32>) -> Vec<u32> {
        let mut all = Vec::new();
        reuse.reclaim(|item| all.push(item));
        all
    }

    #[test]
    fn what_is_retired_without_a_barrier_is_kept() {
        let reuse = Reuse::new();
        reuse.retire_behind(|| false, 1);
        reuse.retire(2);
        assert_eq!((reclaimed(&reuse), reuse.waiting()), (vec![2], 1));
    }

    #[test]
    fn what_is_retired_waits_for_the_runners_that_are_inside() {
        let reuse = Reuse::new();
        let (first, second) = (reuse.runner(), reuse.runner());
        let inside = first.enter();
        reuse.retire(7);
        assert_eq!(reclaimed(&reuse), []);
        let later = second.enter();
        drop(inside);
        let again = first.enter();
        assert_eq!(reclaimed(&reuse), [7], "later runs cannot find it");
        drop((later, again));
    }

    #[test]
    fn nested_runs_are_one_turn() {
        let reuse = Reuse::new();
        let runner = reuse.runner();
        let outer = runner.enter();
        drop(runner.enter());
        assert!(runner.is_inside());
        reuse.retire(1);
        drop(runner.enter());
        assert_eq!(reclaimed(&reuse), []);
        drop(outer);
        assert!(!runner.is_inside());
        assert_eq!(reclaimed(&reuse), [1]);
    }

    #[test]
    fn a_runner_that_has_left_is_not_waited_for() {
        let reuse = Reuse::new();
        let runner = reuse.runner();
        reuse.leave(&runner);
        reuse.retire(1);
        assert_eq!(reuse.waiting(), 1);
        assert_eq!(reclaimed(&reuse), [1]);
        assert_eq!(reuse.waiting(), 0);
    }
}

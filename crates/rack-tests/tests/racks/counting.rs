//! Trusts counted right whatever happens to them: fibers on every thread of the rack clone them,
//! use them, send them to each other, share them, keep them in properties and drop them, in any
//! order. The property dies exactly once, after the last of them, and after every request that was
//! sent through them.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use gossamer::Trust;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde::{Deserialize, Serialize};

use crate::common::{self, Counted, KINDS, run, within_deadline};

type Shelf = Vec<Trust<Counted>>;

/// What a fiber does next with the trusts it holds; numbers pick one of them, or a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Step {
    Clone(usize),
    Drop(usize),
    /// Drops it on a thread outside the rack.
    DropOutside(usize),
    Apply(usize),
    ApplyThen(usize),
    /// Sends one along with work for another thread, and takes it back.
    Lend(usize, usize),
    /// Shares one with fibers on the threads of this host, which use it until the last drops it.
    Share(usize, usize),
    /// Moves one through fibers on the threads of this host, which use it, and takes it back.
    Move(usize, usize),
    /// Gives one away to the shelf of a thread.
    Shelve(usize, usize),
    /// Takes one from the shelf of a thread, if there is one.
    Fetch(usize),
    /// Has one cloned, or all dropped, where the shelf is.
    CloneShelved(usize),
    DropShelved(usize),
    Yield,
}

fn any_step() -> impl Strategy<Value = Step> {
    let (n, m) = (0..8usize, 0..8usize);
    prop_oneof![
        3 => n.clone().prop_map(Step::Clone),
        3 => n.clone().prop_map(Step::Drop),
        1 => n.clone().prop_map(Step::DropOutside),
        1 => n.clone().prop_map(Step::Apply),
        2 => n.clone().prop_map(Step::ApplyThen),
        2 => (n.clone(), m.clone()).prop_map(|(n, m)| Step::Lend(n, m)),
        1 => (n.clone(), m.clone()).prop_map(|(n, m)| Step::Share(n, m)),
        1 => (n.clone(), m.clone()).prop_map(|(n, m)| Step::Move(n, m)),
        2 => (n.clone(), m.clone()).prop_map(|(n, m)| Step::Shelve(n, m)),
        2 => m.clone().prop_map(Step::Fetch),
        1 => m.clone().prop_map(Step::CloneShelved),
        1 => m.clone().prop_map(Step::DropShelved),
        1 => Just(Step::Yield),
    ]
}

/// Sends fire-and-forget requests. If one of them finds the property dead, the rack fails.
fn use_without_waiting(trust: &Trust<Counted>, times: usize) {
    (0..times).for_each(|_| trust.apply_then(|_| (), |()| {}));
}

/// Carries the steps out; what is left is dropped at the end.
fn walk((trust, shelves, steps): (Trust<Counted>, Vec<Trust<Shelf>>, Vec<Step>)) {
    let mut held = vec![trust];
    for step in steps {
        let count = held.len();
        match step {
            Step::Clone(n) if count > 0 => held.push(held[n % count].clone()),
            Step::Drop(n) if count > 0 => drop(held.swap_remove(n % count)),
            Step::DropOutside(n) if count > 0 => {
                let trust = held.swap_remove(n % count);
                std::thread::spawn(move || drop(trust)).join().unwrap();
            }
            // It fails if the property is dead.
            Step::Apply(n) if count > 0 => held[n % count].apply(|_| ()),
            Step::ApplyThen(n) if count > 0 => held[n % count].apply_then(|_| (), |()| {}),
            Step::Lend(n, to) if count > 0 => {
                let trust = held.swap_remove(n % count);
                let threads: Vec<_> = gossamer::threads().collect();
                let to = threads[to % threads.len()];
                let lend = |trust: Trust<Counted>| (trust.clone(), trust);
                let (one, two) = gossamer::spawn_on_with(to, lend, trust).join().unwrap();
                one.apply(|_| ());
                held.push(two);
            }
            Step::Share(n, fibers) if count > 0 => {
                let trust = Arc::new(held.swap_remove(n % count));
                for i in 0..=fibers % 4 {
                    let trust = trust.clone();
                    drop(gossamer::spawn(move || use_without_waiting(&trust, 3 * i)));
                }
                use_without_waiting(&trust, 3);
            }
            Step::Move(n, fibers) if count > 0 => {
                let mut trust = held.swap_remove(n % count);
                for i in 0..=fibers % 4 {
                    let fiber = gossamer::spawn(move || {
                        use_without_waiting(&trust, i);
                        trust
                    });
                    trust = fiber.join().unwrap();
                }
                held.push(trust);
            }
            Step::Shelve(n, to) if count > 0 => {
                let trust = held.swap_remove(n % count);
                shelves[to % shelves.len()].apply_with_then(Vec::push, trust, |()| {});
            }
            Step::Fetch(from) => {
                held.extend(shelves[from % shelves.len()].apply(Vec::pop));
            }
            Step::CloneShelved(at) => shelves[at % shelves.len()].apply(|shelf| {
                shelf.extend_from_within(..shelf.len().min(4));
            }),
            Step::DropShelved(at) => shelves[at % shelves.len()].apply_then(Vec::clear, |()| {}),
            Step::Yield => gossamer::yield_now(),
            _ => {}
        }
    }
}

#[test]
fn a_property_dies_exactly_once_after_its_last_trust() {
    within_deadline("a_property_dies_exactly_once_after_its_last_trust", || {
        for kind in KINDS {
            let config =
                ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
            let walks = prop::collection::vec(prop::collection::vec(any_step(), 0..60), 1..8);
            let home = 0..8usize;
            let result = TestRunner::new(config).run(&(walks, home), |(walks, home)| {
                let ended = run(kind, move || {
                    let threads: Vec<_> = gossamer::threads().collect();
                    let drops = gossamer::local_trustee().entrust(0u32);
                    let trust = threads[home % threads.len()].entrust_with(Counted, drops.clone());
                    let shelves: Vec<Trust<Shelf>> =
                        threads.iter().map(|t| t.entrust_with(|()| Vec::new(), ())).collect();
                    let fibers: Vec<_> = walks
                        .into_iter()
                        .zip(threads.iter().cycle())
                        .map(|(steps, thread)| {
                            let all = (trust.clone(), shelves.clone(), steps);
                            gossamer::spawn_on_with(*thread, walk, all)
                        })
                        .collect();
                    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
                    trust.apply(|_| ());
                    assert_eq!(drops.apply(|drops| *drops), 0, "it died under a living trust");
                    drop((trust, shelves));
                    common::wait_until("its death", || drops.apply(|drops| *drops) > 0);
                    assert_eq!(drops.apply(|drops| *drops), 1);
                });
                prop_assert!(ended.is_ok(), "{ended:?}");
                Ok(())
            });
            result.unwrap_or_else(|failure| panic!("{kind:?}: {failure}"));
        }
    });
}

/// A property that counts, and leaves the count behind when it dies.
struct Tally(u64);

impl Drop for Tally {
    fn drop(&mut self) {
        DIED_AT.store(self.0, SeqCst);
    }
}

const ALIVE: u64 = u64::MAX;
static DIED_AT: AtomicU64 = AtomicU64::new(ALIVE);
/// How far the trustee has come, and whether it may go on.
static HELD_UP: AtomicBool = AtomicBool::new(false);
static GO_ON: AtomicBool = AtomicBool::new(false);
/// How the trust gets from one thread to the other.
static ON_ITS_WAY: Mutex<Option<Trust<Tally>>> = Mutex::new(None);

fn count(trust: &Trust<Tally>, times: usize) {
    (0..times).for_each(|_| trust.apply_then(|tally| tally.0 += 1, |()| {}));
}

/// Uses the trust and drops it while its trustee is held up in the first of these requests and has
/// not seen the others: they are in more than one batch, of which one has not left. When this
/// returns, the trustee may have heard of the drop from every other thread.
fn use_and_drop(first: Trust<()>) {
    let trust = ON_ITS_WAY.lock().unwrap().take().expect("a trust");
    let hold_up = |tally: &mut Tally| {
        HELD_UP.store(true, SeqCst);
        while !GO_ON.load(SeqCst) {
            std::thread::yield_now();
        }
        tally.0 += 1;
    };
    trust.apply_then(hold_up, |()| {});
    common::wait_until("the trustee", || HELD_UP.load(SeqCst));
    count(&trust, 20);
    drop(trust);
    // After whatever the drop has asked of the first thread; and then after what that has sent.
    first.apply(|()| ());
    first.apply(|()| ());
    GO_ON.store(true, SeqCst);
}

/// The first thread uses a trust, which moves to the second, is used there, and is dropped there.
#[test]
fn a_drop_does_not_overtake_what_its_own_thread_has_queued() {
    within_deadline("a_drop_does_not_overtake_what_its_own_thread_has_queued", || {
        for kind in KINDS {
            DIED_AT.store(ALIVE, SeqCst);
            HELD_UP.store(false, SeqCst);
            GO_ON.store(false, SeqCst);
            let ended = run(kind, || {
                let threads: Vec<_> = gossamer::threads().collect();
                let first = gossamer::local_trustee();
                assert_eq!(threads[0], first.trustee());
                let trust = threads[2].entrust_with(Tally, 0);
                count(&trust, 1);
                assert_eq!(trust.apply(|tally| tally.0), 1);
                *ON_ITS_WAY.lock().unwrap() = Some(trust);
                let first = first.entrust(());
                gossamer::spawn_on_with(threads[1], use_and_drop, first).join().unwrap();
                common::wait_until("its death", || DIED_AT.load(SeqCst) != ALIVE);
                assert_eq!(DIED_AT.load(SeqCst), 22, "after everything that was queued");
            });
            assert!(ended.is_ok(), "{kind:?}: {ended:?}");
        }
    });
}

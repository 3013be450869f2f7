//! Which trusts of a property are alive: a set of ids under symmetric difference (thesis 3.2.6).
//!
//! Every trust has an id of its own. The drop of a trust sends one request that *toggles* ids in
//! the property's set: an id that is there is removed, one that is not there is added. When the set
//! is empty, no trust is left. All of it is asynchronous, and no order is needed between requests.
//!
//! The thesis sends one toggle when a trust is cloned and one when it is dropped. That is not
//! enough: if `a` is cloned to `b`, moved to another thread and dropped there, the drop of `a` may
//! arrive before the clone's toggle of `b`; the set is empty, and the property dies under a living
//! trust. So here a trust remembers the ids it was cloned into, and *its own drop* toggles them
//! together with itself:
//!
//! ```text
//!   create a:  {a}      clone a -> b: nothing is sent      drop a: toggle a, b
//! ```
//!
//! So cloning sends nothing at all. A trust that is cloned very often renames itself now and then:
//! it sends the drop of its old self, with its new self among the children ([`RENAME_AFTER`]).
//!
//! # Trusts made by the trustee's own thread
//!
//! There the set is at hand, so what is made there needs no id and is no other trust's child. Such
//! trusts, the first one included, share the id [`COUNTED`], and the set holds their number: it is
//! raised before the trust exists, and the trust's drop, wherever that happens, lowers it.
//!
//! # Requests that are still queued
//!
//! A thread that sends a request through a trust without waiting for the reply becomes a *user* of
//! the trust. When the trust is dropped, its users may still have such requests queued, and the
//! property must not die before they are served. So the drop mints an id for each user and toggles
//! it with the others; and it asks each user to toggle that id too, as one more request to the
//! trustee, which goes after everything that the user has queued:
//!
//! ```text
//!   a: used by U and V      drop a on D:   D -> trustee: toggle a, u, v
//!                                          D -> U: ask      U -> trustee: toggle u
//!                                          D -> V: ask      V -> trustee: toggle v
//! ```
//!
//! The thread that drops the trust needs no id: the drop itself goes after what it has queued. The
//! toggles may arrive in any order, since each id is toggled exactly twice. A trust that renames
//! itself keeps its users: its new self keeps the property alive for them.
//!
//! # Correctness
//!
//! The set is empty exactly when all drops have arrived and every user has answered.
//!
//! - While a trust lives, the set is not empty. Walk from the trust to the one it was cloned from,
//!   and so on to one that is counted; among these, take the first whose drop has not been served.
//!   Either it is the counted one, which has been in the set since it was made, or its parent's drop
//!   has put it there; and nothing but its own drop would take it out.
//! - While a request of a user is unserved, the set is not empty. If the drop of the trust that it
//!   was sent through has not been served either, the trust counts as living. If it has, the user's
//!   id is in the set: the drop has toggled it, and the user's own toggle is after the request. If
//!   that user is the thread that dropped the trust, the drop is after the request.
//! - Conversely, once everything has arrived, every id has been toggled twice: a trust's by its
//!   parent's drop and its own, a user's by the drop and the user. The number of counted trusts has
//!   been lowered as often as it was raised.
//!
//! A trust never leaves its process (what travels is a clone), so its users are threads of the host
//! that drops it, and none of them is lost without it. The end of the rack drops all properties and
//! needs no count.

use std::cell::Cell;
use std::collections::BTreeSet;

use primitive::sync::{AtomicU64, Ordering};

/// Clones of one trust after which it renames itself, so that its memory stays bounded.
pub(crate) const RENAME_AFTER: usize = 64;

/// The id of all trusts that the trustee's own thread has made: the set has their number.
pub(crate) const COUNTED: u64 = 0;

/// The first number that no thread has taken; never zero, which would be [`COUNTED`].
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Numbers that a thread takes at a time, so that threads seldom meet where they mint ids.
const TAKEN: u64 = 1 << 12;

thread_local! {
    /// The numbers that this thread has taken and not used, as the first and the one after the last.
    static NUMBERS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// An id that no other trust and no other use of a trust has, in a rack of which this process is `host`.
pub(crate) fn mint(host: u32) -> u64 {
    let (mut next, mut end) = NUMBERS.get();
    if next == end {
        next = NEXT.fetch_add(TAKEN, Ordering::Relaxed);
        end = next + TAKEN;
    }
    NUMBERS.set((next + 1, end));
    u64::from(host) << 48 | next
}

/// The messages that the drop of a trust sends.
#[derive(Debug)]
pub(crate) struct Release {
    /// The ids that the drop itself toggles.
    pub(crate) ids: Vec<u64>,
    /// The threads that are asked to toggle an id after what they have queued, and the id.
    pub(crate) users: Vec<(u32, u64)>,
}

impl Release {
    /// The drop, on thread `dropper`, of a trust that counts by `ids` (its own and its children's)
    /// and was used by the threads `users`.
    pub(crate) fn new(
        mut ids: Vec<u64>,
        users: &[u32],
        dropper: u32,
        mut mint: impl FnMut() -> u64,
    ) -> Self {
        let others = users.iter().filter(|user| **user != dropper);
        let users: Vec<_> = others.map(|user| (*user, mint())).collect();
        ids.extend(users.iter().map(|(_, id)| id));
        Release { ids, users }
    }
}

/// The trusts of a property that are alive, and the uses of it that are unanswered: how many are
/// counted, and the ids that have been toggled an odd number of times.
#[derive(Debug)]
pub(crate) struct Alive {
    counted: u64,
    ids: BTreeSet<u64>,
}

impl Alive {
    /// Those of a new property, whose only trust is counted.
    pub(crate) fn new() -> Self {
        Alive { counted: 1, ids: BTreeSet::new() }
    }

    /// One more counted trust is made.
    #[inline(always)]
    pub(crate) fn count(&mut self) {
        self.counted += 1;
    }

    /// Drops a counted trust, unless nothing would be left; returns whether it did.
    #[inline(always)]
    pub(crate) fn uncount_unless_last(&mut self) -> bool {
        let is_one_of_several = self.counted > 1 || (self.counted == 1 && !self.ids.is_empty());
        if is_one_of_several {
            self.counted -= 1;
        }
        is_one_of_several
    }

    /// The symmetric difference with `ids`, and one counted trust less for each that is
    /// [`COUNTED`]; true when nothing is left.
    pub(crate) fn toggle(&mut self, ids: impl IntoIterator<Item = u64>) -> bool {
        for id in ids {
            if id == COUNTED {
                // Only a peer that breaks the protocol drops more than there are.
                self.counted = self.counted.saturating_sub(1);
            } else if !self.ids.remove(&id) {
                self.ids.insert(id);
            }
        }
        self.counted == 0 && self.ids.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// The thread that the property lives on.
    const HOME: usize = 0;
    const THREADS: usize = 4;

    struct Trust {
        id: u64,
        children: Vec<u64>,
        users: Vec<u32>,
    }

    /// What a thread has queued for the trustee.
    enum Queued {
        Toggle(Vec<u64>),
        Request,
    }

    /// A property, its trusts, and everything under way to it. Every trust is at hand on every
    /// thread, as if it were shared or moved there; a thread's requests are served in order, those
    /// of different threads in any order.
    struct Model {
        set: Alive,
        died: u32,
        alive: Vec<Trust>,
        queues: [VecDeque<Queued>; THREADS],
        asked: Vec<(u32, u64)>,
        next: u64,
    }

    impl Model {
        fn new() -> Self {
            let first = Trust { id: COUNTED, children: vec![], users: vec![] };
            Model {
                set: Alive::new(),
                died: 0,
                alive: vec![first],
                queues: Default::default(),
                asked: vec![],
                next: 1,
            }
        }
        fn mint(&mut self) -> u64 {
            self.next += 1;
            self.next
        }
        /// Whether everything that counts for the property has ended.
        fn is_over(&self) -> bool {
            self.alive.is_empty()
                && self.asked.is_empty()
                && self.queues.iter().all(VecDeque::is_empty)
        }
        fn send(&mut self, thread: usize, request: Queued) {
            self.queues[thread].push_back(request);
            if thread == HOME {
                self.serve(thread);
            }
        }
        fn serve(&mut self, thread: usize) {
            match self.queues[thread].pop_front() {
                None => {}
                Some(Queued::Request) => assert_eq!(self.died, 0, "a request found it dead"),
                Some(Queued::Toggle(ids)) => {
                    assert_eq!(self.died, 0, "a toggle found it dead");
                    if self.set.toggle(ids) {
                        self.died += 1;
                        assert!(self.is_over(), "it died too early");
                    }
                }
            }
        }
        fn clone_one(&mut self, which: usize, thread: usize) {
            if thread == HOME {
                self.set.count();
                return self.alive.push(Trust { id: COUNTED, children: vec![], users: vec![] });
            }
            let (child, new) = (self.mint(), self.mint());
            let parent = &mut self.alive[which];
            parent.children.push(child);
            if parent.children.len() >= 3 {
                let mut ids = std::mem::take(&mut parent.children);
                ids.extend([std::mem::replace(&mut parent.id, new), new]);
                self.send(thread, Queued::Toggle(ids));
            }
            self.alive.push(Trust { id: child, children: vec![], users: vec![] });
        }
        fn use_one(&mut self, which: usize, thread: usize) {
            let users = &mut self.alive[which].users;
            if thread != HOME && !users.contains(&(thread as u32)) {
                users.push(thread as u32);
            }
            self.send(thread, Queued::Request);
        }
        fn drop_one(&mut self, which: usize, thread: usize) {
            let Trust { id, children: mut ids, users } = self.alive.remove(which);
            let is_bare = id == COUNTED && ids.is_empty() && users.is_empty();
            if thread == HOME && is_bare && self.set.uncount_unless_last() {
                return;
            }
            ids.push(id);
            let release = Release::new(ids, &users, thread as u32, || self.mint());
            self.asked.extend(release.users);
            self.send(thread, Queued::Toggle(release.ids));
        }
        fn answer(&mut self, which: usize) {
            let (user, id) = self.asked.remove(which);
            self.send(user as usize, Queued::Toggle(vec![id]));
        }
        fn step(&mut self, what: u8, which: usize, thread: usize) {
            match what {
                0 if !self.alive.is_empty() => self.clone_one(which % self.alive.len(), thread),
                1 | 2 if !self.alive.is_empty() => self.use_one(which % self.alive.len(), thread),
                3 if !self.alive.is_empty() => self.drop_one(which % self.alive.len(), thread),
                4 if !self.asked.is_empty() => self.answer(which % self.asked.len()),
                _ => self.serve(thread),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn a_property_dies_once_after_its_last_trust_and_request(
            steps in proptest::collection::vec((0u8..7, any::<usize>(), 0..THREADS), 0..200),
            last in any::<u64>(),
        ) {
            let mut model = Model::new();
            for (what, which, thread) in steps {
                model.step(what, which, thread);
            }
            // The rest, in an order that `last` decides.
            let mut random = last;
            while !model.is_over() {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (what, which) = (3 + (random >> 33) % 3, (random >> 40) as usize);
                model.step(what as u8, which, (random >> 60) as usize % THREADS);
            }
            prop_assert_eq!(model.died, 1);
        }
    }

    #[test]
    fn a_drop_that_overtakes_a_users_requests_does_not_kill() {
        let mut set = Alive::new();
        let Release { ids, users } = Release::new(vec![COUNTED], &[5, 6], 6, || 2);
        assert_eq!(users, [(5, 2)], "6 drops the trust behind what it has queued");
        assert!(!set.toggle(ids), "5 may have something queued");
        assert!(set.toggle([2]));
    }

    #[test]
    fn a_drop_that_overtakes_a_clone_does_not_kill() {
        let mut set = Alive::new();
        assert!(!set.toggle([COUNTED, 2]), "the first was cloned into 2, moved, and dropped first");
        assert!(set.toggle([2]));
    }

    #[test]
    fn counted_trusts_and_ids_keep_it_alive_together() {
        let mut set = Alive::new();
        set.count();
        assert!(set.uncount_unless_last(), "two are counted");
        assert!(!set.uncount_unless_last(), "one is, and nothing else is left");
        assert!(!set.toggle([7]));
        assert!(set.uncount_unless_last(), "7 is alive");
        assert!(set.toggle([7]));
        assert!(set.toggle([COUNTED]), "more drops than trusts change nothing");
    }

    #[test]
    fn ids_of_several_threads_differ() {
        let mint_some = || (0..2 * TAKEN + 1).map(|_| mint(1)).collect::<Vec<_>>();
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(mint_some)).collect();
        let ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let unlike: BTreeSet<_> = ids.iter().copied().collect();
        assert_eq!(unlike.len(), ids.len());
        assert!(!unlike.contains(&COUNTED));
    }
}

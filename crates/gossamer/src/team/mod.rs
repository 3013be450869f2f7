//! [`Team`]: one fiber on every trustee, which work in step, and their collectives.
//!
//! Every collective is one *exchange*: each member sends each other member one request, and waits for
//! those of the others. Requests of a pair of threads keep their order, so an exchange is also a fence:
//! when a member has the parts of all others, its thread has served everything that their threads had
//! sent it before. That is what [`Team::barrier`] promises, and what [`Team::quiesce`] counts on.
//!
//! A member may be one round ahead of another, but not two: the next round needs a part of each member.
//! What has arrived is kept by round in the [`Inbox`] of each member (`inbox.rs`).

mod error;
mod inbox;

use std::any::type_name;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::rc::Rc;

use fiber::JoinHandle;
use trust_core::{Chain, Delegable, DelegateError, Portable, Trust};

pub use self::error::TeamError;
use self::inbox::{Inbox, OutOfStep};
use crate::losses::{OnHostLost, on_host_lost};
use crate::placement;

/// One of the fibers that [`Team::run`] starts, one on every trustee of the rack: what it does together
/// with the others. All members call the same collectives in the same order; a collective fails if the
/// values of another member have another type.
///
/// | Collective | Result | Waits for |
/// |---|---|---|
/// | [`barrier`](Self::barrier) | | one exchange |
/// | [`broadcast`](Self::broadcast) | the value of one member | one exchange |
/// | [`gather`](Self::gather) | the values of all members, at one of them | one exchange |
/// | [`all_gather`](Self::all_gather) | the values of all members | one exchange |
/// | [`all_reduce`](Self::all_reduce) | their combination | one exchange |
/// | [`exclusive_scan`](Self::exclusive_scan) | the combination of those before the caller's | one exchange |
/// | [`all_to_all`](Self::all_to_all) | what each member has for the caller | one exchange |
/// | [`quiesce`](Self::quiesce) | | two exchanges, one more for each step of a chain of requests, and a [`flush`](crate::flush) before each |
///
/// In an exchange each of *n* members sends *n* - 1 requests, all at the same time, and none passes a
/// value on: it takes about as long as one request takes one way, and *n* requests to send. There is no
/// tree, which would take more than one such time from 3 members on, and save requests only where they
/// are many. Each member sends its value *n* - 1 times for `all_gather`, `all_reduce` and
/// `exclusive_scan`, and once for `gather`; for `broadcast` one member does.
///
/// Members work on values of their own, and send each other work by delegation: shard `i` of a
/// [`Sharded`](crate::Sharded) is on the thread of member `i`.
///
/// ```
/// use gossamer::{Rack, Sharded, Team};
///
/// Rack::new().threads(2).run(|| {
///     let found = Sharded::<u64, Vec<u64>>::new(Vec::new);
///     // Each member tests some numbers, and sends the primes to the shards that they belong to.
///     let primes = Team::run(
///         |team, found: Sharded<u64, Vec<u64>>| {
///             for number in (2..100u64).filter(|n| *n as usize % team.len() == team.index()) {
///                 if (2..number).all(|divisor| number % divisor > 0) {
///                     found.shard(&number).apply_with_then(|list, prime| list.push(prime), number, drop);
///                 }
///             }
///             team.barrier(); // all that was sent to this thread has been served
///             let mine = found.shards()[team.index()].apply(|list| list.len());
///             team.all_reduce(mine, |a, b| a + b)
///         },
///         found,
///     );
///     assert_eq!(primes, [25, 25]);
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
///
/// A member that ends while another one waits for it, or whose host is lost, ends the others, too:
/// their collectives panic, and [`Team::try_run`] says which member was the first.
pub struct Team {
    inboxes: Vec<Trust<Inbox>>,
    index: usize,
    /// The round of the next exchange.
    round: Cell<u64>,
    /// Why an exchange has failed.
    broken: Cell<Option<OutOfStep>>,
    /// The member that a part of this one has not reached.
    unsent: Rc<Cell<Option<OutOfStep>>>,
    _losses: OnHostLost,
}

/// How a member has ended: with a result, or because it was not in step with another.
type Ended<U> = Result<U, OutOfStep>;

impl Team {
    /// Starts a fiber on every trustee of the rack, each with a copy of `arguments`, and waits for all
    /// of them. The results are in the order of [`trustees`](crate::trustees).
    ///
    /// # Panics
    /// If a member panics or its host is lost; in delegated context; outside a fiber of a rack.
    /// [`try_run`](Self::try_run) returns the first two as an error.
    #[track_caller]
    pub fn run<A, F, U>(member: F, arguments: A) -> Vec<U>
    where
        A: Portable + Clone,
        F: FnOnce(&Team, A) -> U + Delegable + Clone,
        U: Portable + Send,
    {
        match Self::try_run(member, arguments) {
            Ok(results) => results,
            Err(error) => panic!("{}", Chain(&error)),
        }
    }

    /// As [`run`](Self::run), but failures come back as errors.
    ///
    /// # Errors
    /// [`TeamError`]: the member that ended first, not those that could not go on without it.
    ///
    /// # Panics
    /// In delegated context, and outside a fiber of a rack.
    #[track_caller]
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    pub fn try_run<A, F, U>(member: F, arguments: A) -> Result<Vec<U>, TeamError>
    where
        A: Portable + Clone,
        F: FnOnce(&Team, A) -> U + Delegable + Clone,
        U: Portable + Send,
    {
        trust_core::check_may_wait("`Team::run`", Location::caller());
        let trustees: Vec<_> = placement::trustees().collect();
        let size = trustees.len();
        let failed = |index: usize, error| TeamError::Member {
            member: index,
            thread: trustees[index].thread(),
            error,
        };
        let mut inboxes = Vec::new();
        for (index, trustee) in trustees.iter().enumerate() {
            let inbox = trustee.try_entrust_with(Inbox::new, size);
            inboxes.push(inbox.map_err(|error| failed(index, error))?);
        }
        let start = |(index, trustee): (usize, &trust_core::Trustee)| {
            let member = member.clone();
            trustee.spawn_with(
                move |(inboxes, index, arguments)| Team::member(member, inboxes, index, arguments),
                (inboxes.clone(), index, arguments.clone()),
            )
        };
        let members: Vec<JoinHandle<Ended<U>>> = trustees.iter().enumerate().map(start).collect();
        let (mut results, mut first, mut out_of_step) = (Vec::new(), None, None);
        for (index, member) in members.into_iter().enumerate() {
            match member.join() {
                Ok(Ok(result)) => results.push(result),
                Ok(Err(reason)) => {
                    out_of_step.get_or_insert(TeamError::OutOfStep {
                        member: index,
                        reason: reason.to_string(),
                    });
                }
                Err(error) => {
                    first.get_or_insert_with(|| failed(index, error.into()));
                }
            }
        }
        first.or(out_of_step).map_or(Ok(results), Err)
    }

    /// Runs a member, on its thread.
    fn member<A, F, U>(run: F, inboxes: Vec<Trust<Inbox>>, index: usize, arguments: A) -> Ended<U>
    where
        F: FnOnce(&Team, A) -> U,
    {
        let inbox = inboxes[index].clone();
        let hosts: Rc<[_]> = inboxes.iter().map(|inbox| inbox.trustee().thread().host).collect();
        let of_team = hosts.clone();
        let host_lost = move |lost| {
            for (member, _) in hosts.iter().enumerate().filter(|(_, host)| **host == lost) {
                let end = |inbox: &mut Inbox, member| inbox.end(member, "its host was lost".into());
                inbox.apply_with(end, member);
            }
        };
        let losses = on_host_lost(host_lost.clone());
        // Some may have been lost before.
        let live: Vec<_> = placement::live_hosts().collect();
        of_team.iter().filter(|host| !live.contains(host)).for_each(|host| host_lost(*host));
        let (round, broken) = (Cell::new(0), Cell::new(None));
        let unsent = Rc::default();
        let team = Team { inboxes, index, round, broken, unsent, _losses: losses };
        let result = catch_unwind(AssertUnwindSafe(|| run(&team, arguments)));
        let broken = team.broken.take();
        let reason = if result.is_ok() { "it has returned" } else { "it has panicked" };
        team.leave(broken.as_ref().map_or_else(|| reason.to_owned(), ToString::to_string));
        match (result, broken) {
            (Ok(result), _) => Ok(result),
            // Not the panic that ends a fiber with its rack, which must go on.
            (Err(panic), Some(reason)) if panic.is::<String>() => Err(reason),
            (Err(panic), _) => resume_unwind(panic),
        }
    }

    /// The number of this member, from 0: its place in [`trustees`](crate::trustees).
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The number of members.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a team has members")]
    pub fn len(&self) -> usize {
        self.inboxes.len()
    }

    /// Waits until all members wait here, and until the caller's thread has served every request that
    /// threads of members had sent it before they came: also those without a waiter
    /// ([`apply_with_then`](Trust::apply_with_then)), those of other fibers, and updates that a
    /// [`Scatter`](crate::Scatter) had collected. What those requests send in
    /// turn may be under way: [`quiesce`](Self::quiesce).
    ///
    /// # Panics
    /// As every collective: if a member has ended, panicked or lost its host; if it called a collective of
    /// another type; if a part cannot be encoded, sent or decoded; in delegated context.
    #[track_caller]
    pub fn barrier(&self) {
        self.exchange((0..self.len()).map(|_| ()));
    }

    /// Returns the value of member `from` to all; `value` runs there only.
    ///
    /// ```
    /// # gossamer::Rack::new().threads(3).run(|| {
    /// let seeds = gossamer::Team::run(|team, ()| team.broadcast(0, || 17), ());
    /// assert_eq!(seeds, [17; 3]);
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// As [`barrier`](Self::barrier), if there is no member `from`, and if that names another one.
    #[track_caller]
    pub fn broadcast<V: Portable + Clone>(&self, from: usize, value: impl FnOnce() -> V) -> V {
        self.check_member(from);
        let value = (self.index == from).then(value);
        let mut parts = self.exchange(std::iter::repeat_n(value, self.len()));
        let value = parts.swap_remove(from);
        value.unwrap_or_else(|| panic!("member {from} broadcasts the value of another member"))
    }

    /// Returns the values of all members, in their order, to member `to`, and `None` to the others. Unlike
    /// [`all_gather`](Self::all_gather), it sends each value once.
    ///
    /// ```
    /// # gossamer::Rack::new().threads(3).run(|| {
    /// let reports = gossamer::Team::run(
    ///     |team, ()| team.gather(0, format!("member {}", team.index())),
    ///     (),
    /// );
    /// let all = ["member 0", "member 1", "member 2"].map(String::from).to_vec();
    /// assert_eq!(reports, [Some(all), None, None]);
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// As [`barrier`](Self::barrier), if there is no member `to`, and there if another one names one that
    /// is not the same.
    #[track_caller]
    pub fn gather<V: Portable>(&self, to: usize, value: V) -> Option<Vec<V>> {
        self.check_member(to);
        let mut value = Some(value);
        let parts = (0..self.len()).map(|member| if member == to { value.take() } else { None });
        let parts = self.exchange(parts);
        let at_member = |(member, part): (usize, Option<V>)| {
            part.unwrap_or_else(|| panic!("member {member} gathers at another member"))
        };
        (self.index == to).then(|| parts.into_iter().enumerate().map(at_member).collect())
    }

    #[track_caller]
    fn check_member(&self, member: usize) {
        assert!(member < self.len(), "no member {member} in a team of {}", self.len());
    }

    /// Returns the values of all members, in their order.
    ///
    /// ```
    /// # gossamer::Rack::new().threads(3).run(|| {
    /// let squares = gossamer::Team::run(|team, ()| team.all_gather(team.index().pow(2)), ());
    /// assert_eq!(squares, vec![[0, 1, 4]; 3]);
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// As [`barrier`](Self::barrier).
    #[track_caller]
    pub fn all_gather<V: Portable + Clone>(&self, value: V) -> Vec<V> {
        self.exchange(std::iter::repeat_n(value, self.len()))
    }

    /// Combines the values of all members, from that of member 0 on: all get the same result, also of
    /// floating-point numbers.
    ///
    /// ```
    /// # gossamer::Rack::new().threads(3).run(|| {
    /// let sums = gossamer::Team::run(|team, ()| team.all_reduce(team.index(), |a, b| a + b), ());
    /// assert_eq!(sums, [3, 3, 3]);
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// As [`barrier`](Self::barrier).
    #[track_caller]
    pub fn all_reduce<V: Portable + Clone>(&self, value: V, combine: impl FnMut(V, V) -> V) -> V {
        self.all_gather(value).into_iter().reduce(combine).expect("a team has members")
    }

    /// Combines the values of the members before this one; `None` for member 0. With sums: where this
    /// member's part begins in what all of them have.
    ///
    /// ```
    /// # gossamer::Rack::new().threads(3).run(|| {
    /// let starts = gossamer::Team::run(
    ///     |team, lens: Vec<usize>| team.exclusive_scan(lens[team.index()], |a, b| a + b).unwrap_or(0),
    ///     vec![5, 7, 2],
    /// );
    /// assert_eq!(starts, [0, 5, 12]);
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// As [`barrier`](Self::barrier).
    #[track_caller]
    pub fn exclusive_scan<V>(&self, value: V, combine: impl FnMut(V, V) -> V) -> Option<V>
    where
        V: Portable + Clone,
    {
        self.all_gather(value).into_iter().take(self.index).reduce(combine)
    }

    /// Sends `parts[i]` to member `i`, and returns what each member has for this one, in their order.
    ///
    /// Vectors of numbers travel as blocks, on the bulk path of the lane if they are longer than what a
    /// slot takes; a member's part for itself is moved. All of what is sent is in memory at both ends:
    /// to exchange more than that, send it piece by piece to a [`Sharded`](crate::Sharded), and end with
    /// a [`barrier`](Self::barrier).
    ///
    /// ```
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let words = gossamer::Team::run(
    ///     |team, ()| {
    ///         let parts = (0..team.len()).map(|to| format!("{} to {to}", team.index())).collect();
    ///         team.all_to_all(parts).join(", ")
    ///     },
    ///     (),
    /// );
    /// assert_eq!(words, ["0 to 0, 1 to 0", "0 to 1, 1 to 1"]);
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// As [`barrier`](Self::barrier), and if there are not as many parts as members.
    #[track_caller]
    pub fn all_to_all<V: Portable>(&self, parts: Vec<V>) -> Vec<V> {
        let (found, expected) = (parts.len(), self.len());
        assert!(
            found == expected,
            "all_to_all needs a part for each of {expected} members, got {found}"
        );
        self.exchange(parts.into_iter())
    }

    /// Waits until no request of the members' threads is under way: everything that was sent has been
    /// served, and what that sent in turn, and what the callbacks of all these sent, and so on. For work
    /// that makes work: termination detection. Closures that were launched and fibers that were spawned
    /// are not waited for.
    ///
    /// Each thread has one counter of the requests that it has made; the members sum the counters until
    /// the sum has not changed for one exchange, which then was also a fence (Mattern's four counters,
    /// with the order of requests instead of two of them). Requests of all fibers of these threads
    /// count, and updates that their [`Scatter`](crate::Scatter)s collect, so none may send without end.
    ///
    /// ```
    /// use gossamer::{Sharded, Team};
    ///
    /// /// Counts the numbers of a Collatz chain where they belong.
    /// fn step(shards: Sharded<u64, u64>, number: u64) {
    ///     let next = if number % 2 == 0 { number / 2 } else { 3 * number + 1 };
    ///     let shard = shards.shard(&number).clone();
    ///     let count = |steps: &mut u64, (shards, next): (Sharded<u64, u64>, u64)| {
    ///         *steps += 1;
    ///         if next > 1 {
    ///             step(shards, next);
    ///         }
    ///     };
    ///     shard.apply_with_then(count, (shards, next), drop);
    /// }
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let shards = Sharded::<u64, u64>::new(|| 0);
    /// let steps = Team::run(
    ///     |team, shards: Sharded<u64, u64>| {
    ///         if team.index() == 0 {
    ///             step(shards.clone(), 27);
    ///         }
    ///         team.quiesce();
    ///         team.all_reduce(shards.shards()[team.index()].apply(|steps| *steps), |a, b| a + b)
    ///     },
    ///     shards,
    /// );
    /// assert_eq!(steps, [111, 111]);
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// As [`barrier`](Self::barrier).
    #[track_caller]
    pub fn quiesce(&self) {
        // The exchange itself makes this many requests.
        let own = (self.len() * (self.len() - 1)) as u64;
        let (mut flushes, mut before) = (0, None);
        loop {
            // What was made before the last reading has its answer at the next one, and the callback, which
            // may send more, has run. What has been collected counts as well.
            flushes += trust_core::flush_counted();
            let made = trust_core::requests_made() - flushes;
            let made = self.all_reduce(made, u64::wrapping_add);
            if before.replace(made).is_some_and(|before| made == before.wrapping_add(own)) {
                return;
            }
        }
    }

    /// Sends each member a part, and waits for theirs.
    #[track_caller]
    fn exchange<V: Portable>(&self, parts: impl Iterator<Item = V>) -> Vec<V> {
        trust_core::check_may_wait("a collective of a team", Location::caller());
        trust_core::send_collected();
        let round = self.round.replace(self.round.get() + 1);
        let put = |inbox: &mut Inbox, (round, from, part): (u64, usize, V)| {
            inbox.put(round, from, Box::new(part), type_name::<V>());
        };
        for (to, part) in parts.enumerate() {
            // It has no part of this member then, so this team ends here, and there with this member.
            let (own, unsent) = (self.inboxes[self.index].clone(), self.unsent.clone());
            let done = move |put: Result<(), DelegateError>| {
                let Err(error) = put else { return };
                let reason = format!("a part could not be sent to it: {}", Chain(&error));
                unsent.set(Some(OutOfStep::Ended(to, reason.clone())));
                // This member may wait for parts that do not come.
                let end = |inbox: &mut Inbox, (member, reason)| inbox.end(member, reason);
                own.try_apply_with_then(end, (to, reason), drop);
            };
            self.inboxes[to].try_apply_with_then(put, (round, self.index, part), done);
        }
        // Requests leave when the thread polls. If the parts of all others are here already, this fiber
        // does not park; without a poll it would compute while the others still wait for its parts.
        fiber::yield_to_worker();
        let inbox = &self.inboxes[self.index];
        let me = fiber::current().expect("members are fibers").to_bits();
        let mut wait = fiber::Wait::at(Location::caller());
        loop {
            let taken = inbox.apply_with(Inbox::take::<V>, me);
            match self.unsent.take().map_or(taken, Err) {
                Ok(Some(parts)) => return parts,
                Ok(None) => {}
                Err(reason) => {
                    let text = reason.to_string();
                    self.broken.set(Some(reason));
                    panic!("a collective of member {} of a team failed: {text}", self.index);
                }
            }
            wait.explain(|| "the other members of a team");
            if !fiber::park_or_give_up() {
                panic!("a collective of a team failed: the rack has ended");
            }
        }
    }

    /// Tells the others that this member takes part in no further exchange.
    fn leave(&self, reason: String) {
        for inbox in &self.inboxes {
            let end = |inbox: &mut Inbox, (member, reason)| inbox.end(member, reason);
            inbox.try_apply_with_then(end, (self.index, reason.clone()), |_| {});
        }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team(member {} of {})", self.index, self.len())
    }
}

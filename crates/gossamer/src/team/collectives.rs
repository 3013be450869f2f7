//! The collectives of a [`Team`].
//!
//! Every collective is one *exchange*: each member sends each other member one request, and waits for
//! those of the others. Requests of a pair of threads keep their order, so an exchange is also a fence:
//! when a member has the parts of all others, its thread has served everything that their threads had
//! sent it before. That is what [`Team::barrier`] promises, and what [`Team::quiesce`] counts on.
//!
//! A member may be one round ahead of another, but not two: the next round needs a part of each member.

use std::any::type_name;
use std::cell::Cell;
use std::panic::Location;
use std::thread::LocalKey;

use trust_core::{Chain, DelegateError, Portable};

use crate::team::Team;
use crate::team::inbox::{Inbox, OutOfStep};

thread_local! {
    /// The requests that exchanges of this thread make, of all its teams, for [`Team::quiesce`]. A fiber may
    /// wait while it makes one: before that it is in the first of these only.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
    static MADE: Cell<u64> = const { Cell::new(0) };
}

fn add(count: &'static LocalKey<Cell<u64>>, requests: i64) {
    count.set(count.get().wrapping_add_signed(requests));
}

impl Team {
    /// Waits until all members wait here, and until the caller's thread has served every request that
    /// threads of members had sent it before they came: also those without a waiter
    /// ([`apply_with_then`](crate::Trust::apply_with_then)), those of other fibers, and updates that a
    /// [`Scatter`](crate::Scatter) had collected. What those requests send in
    /// turn may be under way: [`quiesce`](Self::quiesce).
    ///
    /// # Panics
    /// As every collective: if a member has ended, panicked or lost its host; if it called a collective of
    /// another type; if a part cannot be encoded, sent or decoded; in delegated context; if the rack has
    /// ended, which aborts the process in a destructor that runs because of that ([`Team`]).
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
    /// Collectives and flushes do not count, whatever fiber calls them: other teams may quiesce at the same
    /// time.
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
        let mut before = None;
        loop {
            // What was made before the last reading has its answer at the next one, and the callback, which
            // may send more, has run. What has been collected counts as well.
            trust_core::flush();
            let made = trust_core::requests_made();
            // How many of them are not of exchanges: at least and at most, since another fiber may be in the
            // middle of one. Both wrap, and so do the sums, which are only compared.
            let least = made.wrapping_sub(BEGUN.get());
            let most = made.wrapping_sub(MADE.get());
            let sum = |a: (u64, u64), b: (u64, u64)| (a.0.wrapping_add(b.0), a.1.wrapping_add(b.1));
            let (least, most) = self.all_reduce((least, most), sum);
            // What was made in between is at most this difference, to which every thread adds.
            if before.replace(least) == Some(most) {
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
            let requests = i64::from(to != self.index);
            let done = move |put: Result<(), DelegateError>| {
                let Err(error) = put else { return };
                // It may not have become a request.
                add(&BEGUN, -requests);
                add(&MADE, -requests);
                let reason = format!("a part could not be sent to it: {}", Chain(&error));
                unsent.set(Some(OutOfStep::Ended(to, reason.clone())));
                // This member may wait for parts that do not come.
                let end = |inbox: &mut Inbox, (member, reason)| inbox.end(member, reason);
                own.try_apply_with_then(end, (to, reason), drop);
            };
            add(&BEGUN, requests);
            self.inboxes[to].try_apply_with_then(put, (round, self.index, part), done);
            add(&MADE, requests);
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
}

//! [`Team`]: one fiber on every trustee, which work in step: how they start and end. Their collectives are in
//! `collectives.rs`; what has arrived for the next ones is in the [`Inbox`] of each member (`inbox.rs`).

mod collectives;
mod error;
mod inbox;

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use fiber::{JoinError, JoinHandle};
use trust_core::{Chain, Delegable, Portable, Trust};

pub use self::error::TeamError;
use self::inbox::{Inbox, OutOfStep};
use crate::hosts;
use crate::losses::{OnHostLost, on_host_lost};

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
/// A member that ends while another one waits for it, that cannot be started, or whose host is lost, ends
/// the others, too: their collectives panic, and [`Team::try_run`] says which member was the first.
///
/// Do not call a collective in a destructor. When the rack ends, its fibers are unwound, and a collective
/// panics because the others do not come any more: a second panic during an unwinding aborts the process.
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
        let trustees: Vec<_> = hosts::trustees().collect();
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
        let members = catch_unwind(AssertUnwindSafe(|| {
            trustees.iter().enumerate().map(start).collect::<Vec<JoinHandle<Ended<U>>>>()
        }));
        let members = members.unwrap_or_else(|panic| {
            // Those that have started would wait for the last one, which has not.
            end_at_all(&inboxes, size - 1, "it has not started");
            resume_unwind(panic)
        });
        let (mut results, mut first, mut out_of_step) = (Vec::new(), None, None);
        for (index, ended) in Team::join(members, &inboxes).into_iter().enumerate() {
            match ended {
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

    /// Waits for all members at once. A member that could not be started tells nobody, so this tells the
    /// others, which may wait for it.
    #[track_caller]
    fn join<U>(
        mut members: Vec<JoinHandle<Ended<U>>>,
        inboxes: &[Trust<Inbox>],
    ) -> Vec<Result<Ended<U>, JoinError>> {
        let mut outcomes: Vec<_> = members.iter().map(|_| None).collect();
        let mut left = members.len();
        let mut first_poll = true;
        let all = poll_fn(|context| {
            for (index, member) in members.iter_mut().enumerate() {
                // Once polled, a member wakes this fiber when it ends; the waker stays the same.
                if outcomes[index].is_some() || !(first_poll || member.is_finished()) {
                    continue;
                }
                if let Poll::Ready(outcome) = Pin::new(member).poll(context) {
                    if let Err(error) = &outcome {
                        end_at_all(inboxes, index, &Chain(error).to_string());
                    }
                    outcomes[index] = Some(outcome);
                    left -= 1;
                }
            }
            first_poll = false;
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        // Without an outcome of all, this fiber is unwound because the rack has ended.
        let _ = fiber::drive("the end of a team's members", pin!(all));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or(Err(JoinError::Cancelled))).collect()
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
        let live: Vec<_> = hosts::live_hosts().collect();
        of_team.iter().filter(|host| !live.contains(host)).for_each(|host| host_lost(*host));
        let (round, broken) = (Cell::new(0), Cell::new(None));
        let unsent = Rc::default();
        let team = Team { inboxes, index, round, broken, unsent, _losses: losses };
        let result = catch_unwind(AssertUnwindSafe(|| run(&team, arguments)));
        let broken = team.broken.take();
        let reason = if result.is_ok() { "it has returned" } else { "it has panicked" };
        team.leave(&broken.as_ref().map_or_else(|| reason.to_owned(), ToString::to_string));
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

    /// Tells the others that this member takes part in no further exchange.
    fn leave(&self, reason: &str) {
        end_at_all(&self.inboxes, self.index, reason);
    }
}

/// Tells all members that this one takes part in no further exchange.
fn end_at_all(inboxes: &[Trust<Inbox>], member: usize, reason: &str) {
    for inbox in inboxes {
        let end = |inbox: &mut Inbox, (member, reason)| inbox.end(member, reason);
        // This fails if a member's host is lost, where no fiber waits any more.
        inbox.try_apply_with_then(end, (member, reason.to_owned()), drop);
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team(member {} of {})", self.index, self.len())
    }
}

//! Client and trustee driven in turn on one thread: what one request costs when no cache line has
//! to travel and nobody waits for anybody.
//!
//! ```text
//!   enqueue (client)   42 x apply_then, which fills a buffer; one poll, which hands it over
//!   serve (trustee)    one poll: runs the batch, writes the replies, hands the buffer back
//!   reap (client)      one poll: takes the replies, calls 42 callbacks
//! ```
//!
//! The same three steps are timed by [`timed`] and stepped through by the counter
//! ([`ONE_REQUEST`]). The clock is read twice a batch for a single part; what a reading costs is
//! measured and taken off.

use std::cell::{Cell, RefCell};
use std::env;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler};
use gossamer::{Trust, local_trustee};
use transport_shm::ShmTransport;
use trust_core::{EnteredNode, Job, Node, Registered, Wiring};

use crate::count::{Counted, Phase, Workload, count, mark};
use crate::harness::{Case, Unit};
use crate::measure::room::{CaseError, Reading};
use crate::work::{Counter, Section};

/// Requests of a full batch; a test holds it against the rack's limits.
pub const BATCH: u64 = 42;
/// Batches that the counter steps through.
pub const COUNTED_BATCHES: u64 = 64;
const WARM_UP_BATCHES: u64 = 1_000;

thread_local! {
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

/// Two nodes of one rack on the calling thread: a client, and the trustee of a counter.
pub struct Seats {
    client: Rc<Node>,
    trustee: Rc<Node>,
    counter: Option<Trust<Counter>>,
    _registered: Registered,
}

impl Seats {
    /// A rack of two threads, neither of which runs.
    ///
    /// # Errors
    /// When its memory cannot be had.
    pub fn new() -> Result<Seats, CaseError> {
        let failed = |e| CaseError::Failed(format!("cannot wire up two nodes: {e}"));
        // Nobody but this thread has work for the rack.
        let registered = Registered::new(Arc::new(drop::<Job>));
        let rack = ShmTransport::threads(2)
            .map_err(|e| CaseError::Failed(format!("cannot make a rack of two threads: {e}")))?;
        let wiring = Wiring::connect(rack, registered.number(), Duration::ZERO).map_err(failed)?;
        let (client, trustee) = (wiring.node(0).map_err(failed)?, wiring.node(1).map_err(failed)?);
        let counter = {
            let _entered = Node::enter(trustee.clone());
            Some(local_trustee().entrust(Counter::fresh()))
        };
        Ok(Seats { client, trustee, counter, _registered: registered })
    }

    /// The client sends a full batch and hands it over.
    #[inline(always)]
    pub fn enqueue(&self, client: &EnteredNode) {
        let Some(counter) = &self.counter else { return };
        for _ in 0..BATCH {
            counter.apply_then(
                |counter| counter.run(0),
                |answer| ANSWERS.set(ANSWERS.get().wrapping_add(answer)),
            );
        }
        client.poll();
    }

    /// One batch from end to end.
    #[inline(always)]
    pub fn batch(&self) {
        let client = Node::enter(self.client.clone());
        self.enqueue(&client);
        drop(client);
        Node::enter(self.trustee.clone()).poll();
        Node::enter(self.client.clone()).poll();
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        // Where it lives the last trust of a property is dropped without a request.
        let _entered = Node::enter(self.trustee.clone());
        self.counter.take();
    }
}

/// A part of the way of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The client's first half.
    Enqueue,
    /// The trustee's part.
    Serve,
    /// The client's second half.
    Reap,
}

/// One part of a request in cycles, or all of it.
pub fn timed(name: &str, part: Option<Part>) -> Case {
    Case::new(name, Unit::Cycles, move |room| {
        let batch = room.try_alone(|alone| {
            let seats = Seats::new()?;
            match part {
                None => alone.measure(|n| (0..n).for_each(|_| seats.batch())),
                Some(part) => {
                    let reading = cost_of_reading();
                    alone.measure_part(|n| (0..n).map(|_| part.of(&seats, reading)).sum());
                }
            }
            Ok(())
        })?;
        Ok(Reading { value: batch.value / BATCH as f64, ..batch })
    })
}

impl Part {
    #[inline(always)]
    fn of(self, seats: &Seats, reading: Duration) -> Duration {
        let mut spent = Duration::ZERO;
        let mut timed = |part: Part, node: &Rc<Node>, work: &dyn Fn(&EnteredNode)| {
            let entered = Node::enter(node.clone());
            if part == self {
                let start = Instant::now();
                work(&entered);
                spent = start.elapsed().saturating_sub(reading);
            } else {
                work(&entered);
            }
        };
        timed(Part::Enqueue, &seats.client, &|node| seats.enqueue(node));
        timed(Part::Serve, &seats.trustee, &|node| assert!(node.poll(), "a batch has come"));
        timed(Part::Reap, &seats.client, &|node| assert!(node.poll(), "a batch has come"));
        spent
    }
}

/// What stands between two readings of the clock with nothing in between.
fn cost_of_reading() -> Duration {
    const TIMES: u32 = 1_000;
    let burst = || (0..TIMES).map(|_| Instant::now().elapsed()).sum::<Duration>() / TIMES;
    // An interruption can only make one longer.
    (0..9).map(|_| burst()).min().unwrap_or_default()
}

/// A request of a fiber that waits for its answer, 64 of them in turn, all of it in cycles.
pub fn with_fibers() -> Case {
    Case::new("gossamer/64 fibers, all", Unit::Cycles, |room| {
        room.try_alone(|alone| {
            let (seats, scheduler) = (Seats::new()?, Scheduler::new(Config::default())?);
            in_fibers(&seats, &scheduler, |step| alone.measure(step));
            Ok(())
        })
    })
}

/// `apply` on a counter of the own thread, which runs at once.
pub fn own_counter() -> Case {
    Case::new("gossamer/apply on the own thread", Unit::Nanoseconds, |room| {
        room.try_alone(|alone| {
            let seats = Seats::new()?;
            let _entered = Node::enter(seats.trustee.clone());
            if let Some(counter) = &seats.counter {
                alone.measure(|n| {
                    for seed in 0..n {
                        black_box(black_box(counter).apply_with(|c, seed| c.run(seed), seed));
                    }
                });
            }
            Ok(())
        })
    })
}

/// Calls `measure` with something that has fibers do n requests, one after another each.
fn in_fibers(seats: &Seats, scheduler: &Scheduler, measure: impl FnOnce(&mut dyn FnMut(u64))) {
    let Some(counter) = &seats.counter else { return };
    let done = Rc::new(Cell::new(0u64));
    let client = || Node::enter(seats.client.clone());
    let counters: Vec<_> = {
        let _client = client();
        (0..super::share::FIBERS).map(|_| counter.clone()).collect()
    };
    let over = Rc::new(Cell::new(false));
    scheduler.enter(|| {
        for counter in counters {
            let (done, over) = (done.clone(), over.clone());
            fiber::spawn_local(move || {
                while !over.get() {
                    black_box(counter.apply(|counter| counter.run(0)));
                    done.set(done.get() + 1);
                }
            });
        }
    });
    let turn = || {
        let entered = client();
        scheduler.run(usize::MAX);
        entered.poll();
        drop(entered);
        Node::enter(seats.trustee.clone()).poll();
        scheduler.enter(|| client().poll());
    };
    measure(&mut |n| {
        let end = done.get() + n;
        while done.get() < end {
            turn();
        }
    });
    over.set(true);
    while scheduler.live() > 0 {
        turn();
    }
    // The fibers' trusts have been dropped; their requests for that are still on their way.
    turn();
}

/// The workload of the counter: a few batches, in the three phases of the module's drawing.
pub const ONE_REQUEST: Workload =
    Workload { name: "one-request", phases: &["enqueue", "serve", "reap"], run: one_request };

fn one_request() {
    let seats = Seats::new().expect("two nodes");
    (0..WARM_UP_BATCHES).for_each(|_| seats.batch());
    mark::begin();
    for _ in 0..COUNTED_BATCHES {
        let client = Node::enter(seats.client.clone());
        mark::phase::<0>();
        seats.enqueue(&client);
        mark::pause();
        drop(client);
        let trustee = Node::enter(seats.trustee.clone());
        mark::phase::<1>();
        trustee.poll();
        mark::pause();
        drop(trustee);
        let client = Node::enter(seats.client.clone());
        mark::phase::<2>();
        client.poll();
        mark::pause();
        drop(client);
    }
    mark::end();
    let counter = seats.counter.as_ref().expect("it is dropped with the seats");
    let _trustee = Node::enter(seats.trustee.clone());
    let served = counter.apply(|counter| counter.runs());
    assert_eq!(served, (WARM_UP_BATCHES + COUNTED_BATCHES) * BATCH, "every batch was served");
}

/// The counts of [`ONE_REQUEST`], which are taken once however many cases and rounds ask: nothing
/// can change them.
#[derive(Clone, Debug, Default)]
pub struct Counts(Rc<RefCell<Option<Counted>>>);

impl Counts {
    /// A case that reads `what` of the counts.
    pub fn case(
        &self,
        name: impl Into<String>,
        unit: Unit,
        what: impl Fn(&[Phase]) -> f64 + 'static,
    ) -> Case {
        let counts = self.0.clone();
        Case::new(name, unit, move |room| {
            if counts.borrow().is_none() {
                let counted = count(&ONE_REQUEST, &env::current_exe()?, room.cores.first);
                *counts.borrow_mut() = Some(counted.map_err(|e| CaseError::Failed(e.to_string()))?);
            }
            let counted = counts.borrow();
            let phases = counted.as_ref().map_or(&[][..], |counted| &counted.0);
            Ok(Reading::of(what(phases)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_goes_through_all_parts() {
        let seats = Seats::new().expect("seats");
        let served = || {
            let _entered = Node::enter(seats.trustee.clone());
            let counter = seats.counter.as_ref().expect("a counter");
            counter.apply(|counter| counter.runs())
        };
        seats.batch();
        assert_eq!(served(), BATCH);
        Part::Serve.of(&seats, Duration::ZERO);
        assert_eq!(served(), 2 * BATCH);
    }

    #[test]
    fn a_batch_that_is_full_goes_when_one_more_request_comes() {
        let seats = Seats::new().expect("seats");
        let served = || {
            let trustee = Node::enter(seats.trustee.clone());
            trustee.poll();
            let counter = seats.counter.as_ref().expect("a counter");
            counter.apply(|counter| counter.runs())
        };
        let send = || {
            let _client = Node::enter(seats.client.clone());
            seats.counter.as_ref().expect("a counter").apply_then(|counter| counter.run(0), |_| ());
        };
        (0..BATCH).for_each(|_| send());
        assert_eq!(served(), 0, "the client has not been polled");
        send();
        assert_eq!(served(), BATCH, "all of a batch, and no more");
    }

    #[test]
    fn fibers_take_turns_with_their_trustee() {
        let seats = Seats::new().expect("seats");
        let scheduler = Scheduler::new(Config::default()).expect("a scheduler");
        in_fibers(&seats, &scheduler, |step| step(1_000));
        let _entered = Node::enter(seats.trustee.clone());
        let counter = seats.counter.as_ref().expect("a counter");
        assert!(counter.apply(|counter| counter.runs()) >= 1_000);
    }
}

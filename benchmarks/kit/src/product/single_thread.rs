//! Client and trustee driven alternately on one thread: what one request costs when no cache line
//! has to travel and no thread waits.
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
use crate::measure::sampling::{CaseError, Reading};
use crate::work::{Counter, Section};

/// Fibers of a thread, where there are many.
pub const FIBERS: usize = 64;
/// Requests of a full batch; a test holds it against the rack's limits.
pub const BATCH: u64 = 42;
/// Batches that the counter steps through: a thread polls its lanes and looks after its peers in one round of
/// 33, and each batch is a round of its trustee.
pub const COUNTED_BATCHES: u64 = 33;
const WARM_UP_BATCHES: u64 = 1_000;
/// Polls after which a thread has been awake for so long that its wakers need no fence.
const BUSY_AFTER: u64 = 40_000;

thread_local! {
    static REPLIES: Cell<u64> = const { Cell::new(0) };
}

/// Two nodes of one rack on the calling thread: a client, and the trustee of a counter.
pub struct NodePair {
    client: Rc<Node>,
    trustee: Rc<Node>,
    counter: Option<Trust<Counter>>,
    _registered: Registered,
}

impl NodePair {
    /// A rack of two threads, neither of which runs.
    ///
    /// # Errors
    /// When its memory cannot be had.
    pub fn new() -> Result<NodePair, CaseError> {
        let (registered, client, trustee) = two_nodes()?;
        let counter = {
            let _entered = Node::enter(trustee.clone());
            Some(local_trustee().entrust(Counter::fresh()))
        };
        Ok(NodePair { client, trustee, counter, _registered: registered })
    }

    /// The client sends a full batch and hands it over.
    #[inline(always)]
    pub fn enqueue(&self, client: &EnteredNode) {
        let Some(counter) = &self.counter else { return };
        for _ in 0..BATCH {
            counter.apply_then(
                |counter| counter.run(0),
                |answer| REPLIES.set(REPLIES.get().wrapping_add(answer)),
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

/// Two nodes of a rack of two threads, neither of which runs. They have polled as threads do that have
/// worked for some milliseconds.
pub(super) fn two_nodes() -> Result<(Registered, Rc<Node>, Rc<Node>), CaseError> {
    let failed = |e| CaseError::Failed(format!("cannot wire up two nodes: {e}"));
    // Only this thread has work for the rack.
    let registered = Registered::new(Arc::new(drop::<Job>));
    let rack = ShmTransport::threads(2)
        .map_err(|e| CaseError::Failed(format!("cannot make a rack of two threads: {e}")))?;
    let wiring = Wiring::connect(rack, registered.number(), Duration::ZERO).map_err(failed)?;
    let (client, trustee) = (wiring.node(0).map_err(failed)?, wiring.node(1).map_err(failed)?);
    for node in [&client, &trustee] {
        let entered = Node::enter(node.clone());
        for _ in 0..BUSY_AFTER {
            entered.poll();
        }
    }
    Ok((registered, client, trustee))
}

impl Drop for NodePair {
    fn drop(&mut self) {
        // Where it lives the last trust of a property is dropped without a request.
        let _entered = Node::enter(self.trustee.clone());
        self.counter.take();
    }
}

/// A part of the way of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The client's first half.
    Enqueue,
    /// The trustee's part.
    Serve,
    /// The client's second half.
    Reap,
}

/// One part of a request in cycles, or all of it.
pub fn timed(name: &str, stage: Option<Stage>) -> Case {
    Case::new(name, Unit::Cycles, move |sampler| {
        let batch = sampler.try_single_thread(|thread| {
            let nodes = NodePair::new()?;
            match stage {
                None => thread.measure(|n| (0..n).for_each(|_| nodes.batch())),
                Some(stage) => {
                    let reading = cost_of_reading();
                    thread.measure_timed(|n| (0..n).map(|_| stage.of(&nodes, reading)).sum());
                }
            }
            Ok(())
        })?;
        Ok(Reading { value: batch.value / BATCH as f64, ..batch })
    })
}

impl Stage {
    #[inline(always)]
    fn of(self, nodes: &NodePair, reading: Duration) -> Duration {
        let mut spent = Duration::ZERO;
        let mut timed = |stage: Stage, node: &Rc<Node>, work: &dyn Fn(&EnteredNode)| {
            let entered = Node::enter(node.clone());
            if stage == self {
                let start = Instant::now();
                work(&entered);
                spent = start.elapsed().saturating_sub(reading);
            } else {
                work(&entered);
            }
        };
        timed(Stage::Enqueue, &nodes.client, &|node| nodes.enqueue(node));
        timed(Stage::Serve, &nodes.trustee, &|node| assert!(node.poll(), "a batch has come"));
        timed(Stage::Reap, &nodes.client, &|node| assert!(node.poll(), "a batch has come"));
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
    Case::new("gossamer/64 fibers, all", Unit::Cycles, |sampler| {
        sampler.try_single_thread(|thread| {
            let (nodes, scheduler) = (NodePair::new()?, Scheduler::new(Config::default())?);
            in_fibers(&nodes, &scheduler, |step| thread.measure(step));
            Ok(())
        })
    })
}

/// `apply` on a counter of the own thread, which runs at once.
pub fn own_counter() -> Case {
    Case::new("gossamer/apply on the own thread", Unit::Nanoseconds, |sampler| {
        sampler.try_single_thread(|thread| {
            let nodes = NodePair::new()?;
            let _entered = Node::enter(nodes.trustee.clone());
            if let Some(counter) = &nodes.counter {
                thread.measure(|n| {
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
fn in_fibers(nodes: &NodePair, scheduler: &Scheduler, measure: impl FnOnce(&mut dyn FnMut(u64))) {
    let Some(counter) = &nodes.counter else { return };
    let done = Rc::new(Cell::new(0u64));
    let client = || Node::enter(nodes.client.clone());
    let counters: Vec<_> = {
        let _client = client();
        (0..FIBERS).map(|_| counter.clone()).collect()
    };
    let stop = Rc::new(Cell::new(false));
    scheduler.enter(|| {
        for counter in counters {
            let (done, stop) = (done.clone(), stop.clone());
            fiber::spawn_local(move || {
                while !stop.get() {
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
        Node::enter(nodes.trustee.clone()).poll();
        scheduler.enter(|| client().poll());
    };
    measure(&mut |n| {
        let end = done.get() + n;
        while done.get() < end {
            turn();
        }
    });
    stop.set(true);
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
    let nodes = NodePair::new().expect("two nodes");
    (0..WARM_UP_BATCHES).for_each(|_| nodes.batch());
    mark::begin();
    for _ in 0..COUNTED_BATCHES {
        let client = Node::enter(nodes.client.clone());
        mark::phase::<0>();
        nodes.enqueue(&client);
        mark::pause();
        drop(client);
        let trustee = Node::enter(nodes.trustee.clone());
        mark::phase::<1>();
        trustee.poll();
        mark::pause();
        drop(trustee);
        let client = Node::enter(nodes.client.clone());
        mark::phase::<2>();
        client.poll();
        mark::pause();
        drop(client);
    }
    mark::end();
    let counter = nodes.counter.as_ref().expect("it is dropped with the nodes");
    let _trustee = Node::enter(nodes.trustee.clone());
    let served = counter.apply(|counter| counter.runs());
    assert_eq!(served, (WARM_UP_BATCHES + COUNTED_BATCHES) * BATCH, "every batch was served");
}

/// The counts of a workload, which are taken once however many cases and rounds ask: nothing can
/// change them.
#[derive(Clone, Debug)]
pub struct Counts(&'static Workload, Rc<RefCell<Option<Counted>>>);

impl Counts {
    /// Those of `workload`.
    pub fn of(workload: &'static Workload) -> Counts {
        Counts(workload, Rc::default())
    }

    /// A case that reads `what` of the counts.
    pub fn case(
        &self,
        name: impl Into<String>,
        unit: Unit,
        what: impl Fn(&[Phase]) -> f64 + 'static,
    ) -> Case {
        let Counts(workload, counts) = self.clone();
        Case::new(name, unit, move |sampler| {
            if counts.borrow().is_none() {
                let counted = count(workload, &env::current_exe()?, sampler.cores.first);
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
        let nodes = NodePair::new().expect("nodes");
        let served = || {
            let _entered = Node::enter(nodes.trustee.clone());
            let counter = nodes.counter.as_ref().expect("a counter");
            counter.apply(|counter| counter.runs())
        };
        nodes.batch();
        assert_eq!(served(), BATCH);
        Stage::Serve.of(&nodes, Duration::ZERO);
        assert_eq!(served(), 2 * BATCH);
    }

    #[test]
    fn a_batch_that_is_full_goes_when_one_more_request_comes() {
        let nodes = NodePair::new().expect("nodes");
        let served = || {
            let trustee = Node::enter(nodes.trustee.clone());
            trustee.poll();
            let counter = nodes.counter.as_ref().expect("a counter");
            counter.apply(|counter| counter.runs())
        };
        let send = || {
            let _client = Node::enter(nodes.client.clone());
            nodes.counter.as_ref().expect("a counter").apply_then(|counter| counter.run(0), |_| ());
        };
        (0..BATCH).for_each(|_| send());
        assert_eq!(served(), 0, "the client has not been polled");
        send();
        assert_eq!(served(), BATCH, "all of a batch, and no more");
    }

    #[test]
    fn fibers_take_turns_with_their_trustee() {
        let nodes = NodePair::new().expect("nodes");
        let scheduler = Scheduler::new(Config::default()).expect("a scheduler");
        in_fibers(&nodes, &scheduler, |step| step(1_000));
        let _entered = Node::enter(nodes.trustee.clone());
        let counter = nodes.counter.as_ref().expect("a counter");
        assert!(counter.apply(|counter| counter.runs()) >= 1_000);
    }
}

//! One call at a time: a fiber that waits for each answer, with client and trustee driven alternately
//! on one thread. What a call costs that shares its batch with no other, and how much dearer it is if
//! its closure may wait (`launch`).

use std::hint::black_box;
use std::rc::Rc;

use fiber::{Config, Scheduler, spawn_local};
use gossamer::{Latch, Trust, local_trustee};
use trust_core::{EnteredNode, Node, Registered};

use super::single_thread::two_nodes;
use crate::count::{Workload, mark};
use crate::harness::{Case, Unit};
use crate::measure::sampling::CaseError;
use crate::work::{Counter, Section};

/// Calls of each kind that the counter steps through: a whole period, as
/// [`COUNTED_BATCHES`](super::single_thread::COUNTED_BATCHES).
pub const COUNTED_CALLS: u64 = 33;
/// Visits of a call's phase: client, trustee, client.
pub const VISITS: u64 = 3;
const WARM_UP_CALLS: u64 = 1_000;

/// How a counter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// By a closure that does not wait.
    Apply,
    /// By one that may wait, and does not.
    Launch,
}

/// A fiber that calls a counter of another node, one call after another.
struct Calls {
    client: (Rc<Node>, Scheduler),
    trustee: (Rc<Node>, Scheduler),
    _registered: Registered,
}

impl Calls {
    fn new(call: Call) -> Result<Calls, CaseError> {
        let (registered, client, trustee) = two_nodes()?;
        let calls = Calls {
            client: (client, Scheduler::new(Config::default())?),
            trustee: (trustee, Scheduler::new(Config::default())?),
            _registered: registered,
        };
        let (plain, latch): (Trust<Counter>, Trust<Latch<Counter>>) = {
            let _entered = Node::enter(calls.trustee.0.clone());
            let latch = Latch::new(Counter::fresh());
            (local_trustee().entrust(Counter::fresh()), local_trustee().entrust(latch))
        };
        calls.client.1.enter(|| {
            spawn_local(move || {
                loop {
                    black_box(match call {
                        Call::Apply => plain.apply(|counter| counter.run(0)),
                        Call::Launch => latch.launch(|counter| counter.run(0)),
                    });
                }
            });
        });
        calls.turn::<0>();
        Ok(calls)
    }

    /// Takes the answer of one call, and has the next one made and answered, as a phase.
    #[inline(always)]
    fn turn<const PHASE: u16>(&self) {
        on::<PHASE>(&self.client, |node, fibers| {
            fibers.run(1);
            node.poll();
        });
        on::<PHASE>(&self.trustee, |node, launched| {
            node.poll();
            if launched.run(1) > 0 {
                node.poll();
            }
        });
        on::<PHASE>(&self.client, |node, _| _ = node.poll());
    }
}

/// Has a thread act, as a part of a phase. A thread enters its node and its scheduler once and not for each
/// call, so that they are not in it.
#[inline(always)]
fn on<const PHASE: u16>(
    (node, fibers): &(Rc<Node>, Scheduler),
    act: impl FnOnce(&EnteredNode, &Scheduler),
) {
    fibers.enter(|| {
        let entered = Node::enter(node.clone());
        mark::phase::<PHASE>();
        act(&entered, fibers);
        mark::pause();
    });
}

impl Drop for Calls {
    fn drop(&mut self) {
        // The fiber is dropped where its call has ended: no request is under way between turns.
        let _entered = Node::enter(self.client.0.clone());
        if let Ok(empty) = Scheduler::new(Config::default()) {
            std::mem::replace(&mut self.client.1, empty).abandon();
        }
    }
}

/// One call after another, in nanoseconds each.
pub fn timed(name: &str, call: Call) -> Case {
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        sampler.try_single_thread(|thread| {
            let calls = Calls::new(call)?;
            thread.measure(|n| (0..n).for_each(|_| calls.turn::<0>()));
            Ok(())
        })
    })
}

/// The workload of the counter: calls of both kinds.
pub const LONE_CALL: Workload =
    Workload { name: "lone-call", phases: &["apply", "launch"], run: lone_call };

fn lone_call() {
    let kinds = [Call::Apply, Call::Launch].map(|call| Calls::new(call).expect("two nodes"));
    for calls in &kinds {
        (0..WARM_UP_CALLS).for_each(|_| calls.turn::<0>());
    }
    let [apply, launch] = kinds;
    mark::begin();
    for _ in 0..COUNTED_CALLS {
        apply.turn::<0>();
        launch.turn::<1>();
    }
    mark::end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_makes_a_call() {
        for call in [Call::Apply, Call::Launch] {
            let calls = Calls::new(call).expect("nodes");
            (0..10).for_each(|_| calls.turn::<0>());
            let made = calls.client.0.traffic().requests_out;
            assert!((10..=11).contains(&made), "{call:?}: {made}");
        }
    }
}

//! [`flush`]: waiting for all requests that this thread has sent.

use std::cell::Cell;
use std::panic::Location;
use std::rc::{Rc, Weak};

use fiber::FiberId;

use crate::api::apply::or_raise;
use crate::api::may_wait::check_may_wait;
use crate::client::completion::Completion;
use crate::client::outcome::Outcome;
use crate::closure::invoke::Plain;
use crate::error::outside;
use crate::node::collected::Collects;
use crate::node::request::Target;
use crate::node::system::Runtime;
use crate::node::{Node, on_node, with_node};

/// Waits until every request that the current thread has sent before has been served, and the
/// callbacks of [`apply_then`](crate::Trust::apply_then) and its relatives have run: those of all
/// fibers of the thread. It sends one request after them to each thread that has not answered all of
/// them; so it does not wait for what callbacks send in turn, nor for closures that were launched.
/// Updates that `Scatter`s of the thread's fibers have collected are sent first.
///
/// A request that fails is done as well; its failure is reported as ever.
///
/// ```ignore
/// for word in words {
///     counts.shard(&word).apply_with_then(|counts, word| *counts.entry(word).or_default() += 1, word, drop);
/// }
/// gossamer::flush(); // all of them are counted
/// ```
///
/// # Panics
/// In delegated context, and outside a fiber of a rack.
#[track_caller]
pub fn flush() {
    // Not inside the closure, whose line the panic would name instead of the caller's.
    check_may_wait("`flush`", Location::caller());
    or_raise(with_node(|node| {
        let (Some(node), Some(fiber)) = (node, fiber::current()) else { return Err(outside()) };
        send_all_collected(node);
        let busy = node.busy();
        node.flushes.set(node.flushes.get() + busy.len() as u64);
        let left = Rc::new(Cell::new(busy.len()));
        for home in busy {
            let served = |_: &mut Runtime| {};
            let target = Target::of_runtime(home);
            node.request(target, Plain(served), &(), Served { left: left.clone(), fiber });
        }
        // While the fiber is unwound, nothing is under way any more.
        while left.get() > 0 && fiber::park_or_give_up() {}
        Ok(())
    }));
}

/// For layers above: has everything of the current thread that collects updates send them, as
/// [`flush`] does, and does not wait until they have run. When it returns, nothing is left.
///
/// # Panics
/// Outside a thread of a rack.
#[doc(hidden)]
#[track_caller]
pub fn send_collected() {
    or_raise(on_node(send_all_collected).ok_or_else(outside));
}

/// A fiber waits here for others that are adding updates. What is collected meanwhile is sent as well.
fn send_all_collected(node: &Node) {
    let _stay = node.stay();
    while !node.collectors.send() {
        if node.is_closed() {
            // Nothing is sent any more, and the fiber that adds an update is unwound.
            return;
        }
        fiber::yield_to_worker();
    }
}

/// For layers above: has [`send_collected`] and [`flush`] ask `collector` as long as that lives. Without
/// an effect outside a rack, where nothing can be sent.
#[doc(hidden)]
pub fn register_collector(collector: Weak<dyn Collects>) {
    on_node(|node| node.collectors.add(collector));
}

/// For layers above: how many requests the current thread has ever made of other threads, those that
/// wait to be handed over included. Their own requests of both kinds, with a waiter or without, count;
/// calls of the thread's own properties do not, nor do the requests of [`flush`]. Requests that were not
/// handed over when their host was lost count no more.
///
/// # Panics
/// Outside a thread of a rack.
#[doc(hidden)]
#[must_use]
#[track_caller]
pub fn requests_made() -> u64 {
    or_raise(on_node(Node::requests_made).ok_or_else(outside))
}

/// One thread has served all requests before this.
struct Served {
    left: Rc<Cell<usize>>,
    fiber: FiberId,
}

impl Completion for Served {
    fn complete(self, _: Outcome<'_>) {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            fiber::unpark(self.fiber);
        }
    }
}

//! [`EnteredNode`]: the guard while which a thread is a node, and how code of the thread finds its
//! node.
//!
//! The thread-local reference to a node is taken away before the node goes. Code inside a
//! node keeps it alive: by a context, a poll, a borrowed lane, or by asking it to
//! [stay](Stay).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::client::outbox::Outbox;
use crate::closure::context::Context;
use crate::error::{Panic, RACK_ENDED};
use crate::node::state::Node;

thread_local! {
    static CURRENT: Cell<Option<&'static Node>> = const { Cell::new(None) };
    /// An outbox of that node: the one by which the thread has last sent a request without waiting.
    static RECENT: Cell<Option<&'static Outbox>> = const { Cell::new(None) };
}

impl Node {
    /// Makes `node` the current thread's until the guard is dropped.
    ///
    /// # Panics
    /// If the thread has one already.
    pub fn enter(node: Rc<Node>) -> EnteredNode {
        // SAFETY: the reference is taken out of the thread-local by the guard's drop, while the
        // guard still holds the node; `with_node` never lets it escape, and if code is still
        // inside `with_node` then, the node is never freed.
        let current = unsafe { &*Rc::as_ptr(&node) };
        if let Some(before) = CURRENT.get() {
            panic!("this thread already runs {}", before.me);
        }
        CURRENT.set(Some(current));
        RECENT.set(current.outboxes.last_used());
        EnteredNode(node)
    }

    /// Refuses what would pull the node out from under the code that it runs.
    fn check_idle(&self, what: &str) {
        assert!(
            !self.polling.get() && self.context.is_free(),
            "a node cannot {what} inside delegated code or callbacks"
        );
    }

    /// Notes an outbox of this node, which is the current thread's, as [recent](recent).
    #[inline(always)]
    pub(crate) fn note_recent(&self, outbox: &Outbox) {
        // SAFETY: the outbox is in a box of the node's that is never changed, and the reference is taken
        // away before the node goes, as that to the node itself.
        RECENT.set(Some(unsafe { &*std::ptr::from_ref(outbox) }));
    }

    /// Keeps the node from going until the guard is dropped. For functions of the node that,
    /// outside any other context, run code of users or park the fiber, and use the node
    /// afterwards.
    pub(crate) fn stay(&self) -> Stay<'_> {
        self.staying.set(self.staying.get() + 1);
        Stay(self)
    }

    /// Whether no function of the node that will look at it again is on any stack of this thread,
    /// those of parked fibers included: they are in a context, in a poll, at a lane, or have asked
    /// it to stay. A fiber that waits for a reply looks only at its own stack when it goes on.
    fn is_unused(&self) -> bool {
        self.context.is_free()
            && !self.polling.get()
            && !self.runs_deferred.get()
            && self.staying.get() == 0
            && self.progress.is_idle()
    }
}

/// While it lives, its node does not go.
pub(crate) struct Stay<'a>(&'a Node);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.staying.set(self.0.staying.get() - 1);
    }
}

/// Makes the thread a node until it is dropped.
///
/// # Panics
/// When it is dropped by code that the node runs, or while fibers wait inside the node: their
/// scheduler must go first. The thread goes on being that node then, for good.
#[derive(Debug)]
pub struct EnteredNode(Rc<Node>);

/// What only the owner of a thread's node may do; code that runs *in* the node (closures,
/// callbacks, fibers) never has this.
impl EnteredNode {
    /// Makes progress: sends, serves, takes replies. True if anything happened. Call it from the
    /// worker, outside any fiber; called by what it runs itself, it does nothing.
    pub fn poll(&self) -> bool {
        if self.0.polling.replace(true) {
            return false;
        }
        let progress = self.0.poll_once();
        self.0.polling.set(false);
        progress
    }

    /// Hands in a clock that goes forward only. By it, fibers that call properties of this thread
    /// in a loop give way after some 50 microseconds, so that the node is polled; without it they
    /// give way after every 1024 calls, however long those take.
    pub fn keep_time(&self, clock: fn() -> Instant) {
        self.0.turn.keep_time(clock);
    }

    /// Polls the lanes: bulk payloads, notifications, losses. True if there was anything.
    pub fn poll_lanes(&self) -> bool {
        if self.0.polling.replace(true) {
            return false;
        }
        let moved = self.0.progress.poll();
        self.0.polling.set(false);
        moved
    }

    /// Ends every request under way and every one to come: the rack has ended. After this no fiber
    /// waits for a reply, so that fibers can be unwound. Requests of this thread to itself still
    /// run, those that were put off included.
    ///
    /// # Panics
    /// Inside delegated code or callbacks.
    pub fn close(&self) {
        self.0.check_idle("close");
        self.0.closed.set(true);
        self.0.polling.set(true);
        let context = self.0.context.enter(Context::Callback);
        let caught = &mut |panic: Panic| self.0.report_panic(panic);
        for outbox in self.0.outboxes.iter() {
            outbox.close(&RACK_ENDED, caught, fiber::unpark);
        }
        self.0.awaited_calls.fail(|_| true, || RACK_ENDED, caught);
        self.0.progress.close();
        drop(context);
        self.0.polling.set(false);
        self.0.run_deferred();
    }

    /// Drops all properties, for the end of the rack, and runs what their destructors put off.
    ///
    /// # Panics
    /// Inside delegated code or callbacks.
    pub fn clear(&self) {
        self.0.check_idle("clear");
        for dead in self.0.properties.clear() {
            self.0.drop_property(Some(dead));
        }
        self.0.run_deferred();
    }
}

impl std::ops::Deref for EnteredNode {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.0
    }
}

impl Drop for EnteredNode {
    fn drop(&mut self) {
        if self.0.is_unused() {
            RECENT.set(None);
            return CURRENT.set(None);
        }
        // Code that is suspended inside the node goes on using it.
        std::mem::forget(self.0.clone());
        assert!(
            std::thread::panicking(),
            "a thread cannot stop being a node inside delegated code or callbacks, nor while fibers \
             wait inside the node: let them end, or drop their scheduler first"
        );
    }
}

/// Runs `f` with the current thread's node, if it has one.
#[inline(always)]
pub(crate) fn with_node<R>(f: impl FnOnce(Option<&Node>) -> R) -> R {
    f(CURRENT.get())
}

/// Runs `f` with the current thread's node; `None` if it has none.
#[inline(always)]
pub(crate) fn on_node<R>(f: impl FnOnce(&Node) -> R) -> Option<R> {
    with_node(|node| node.map(f))
}

/// The current thread's node, if it has one, for code on the common path of a request: unlike what
/// is in a closure, it is sure to be part of its caller. As with [`with_node`], the node does not
/// leave the function that asks: whatever it asks with must be its own argument.
#[inline(always)]
pub(crate) fn current(_asking: &impl Sized) -> Option<&Node> {
    CURRENT.get()
}

/// The outbox that has been [noted](Node::note_recent) last, or is the one that the node had used last when
/// the thread became it. See [`current`].
#[inline(always)]
pub(crate) fn recent(_asking: &impl Sized) -> Option<&Outbox> {
    RECENT.get()
}

//! Listeners for the loss of a host: the channels of this thread, and callbacks of the program
//! ([`on_host_lost`]).
//!
//! Every thread learns of a loss by itself, from its own lanes, and tells its own listeners; nothing
//! here is shared between threads.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};

use transport_api::HostId;

thread_local! {
    static LISTENERS: RefCell<Vec<Weak<dyn Losses>>> = const { RefCell::new(Vec::new()) };
}

/// A listener for the loss of a host, on its own thread.
pub(crate) trait Losses {
    fn host_lost(&self, host: HostId);

    /// Whether it runs code of the program, which may wait and panic.
    fn is_of_program(&self) -> bool {
        false
    }
}

/// Calls `listener` for every host that is lost from now on, until it is dropped.
pub(crate) fn listen(listener: Weak<dyn Losses>) {
    LISTENERS.with_borrow_mut(|listeners| {
        // As often as the list doubles.
        if listeners.len() == listeners.capacity() {
            listeners.retain(|listener| listener.strong_count() > 0);
        }
        listeners.push(listener);
    });
}

/// Tells the listeners of this thread. Called by its worker, in a fiber. `report` gets the panics of values
/// that channels drop.
pub(crate) fn tell(host: HostId, report: impl Fn(Box<dyn Any + Send>)) {
    let listeners: Vec<_> =
        LISTENERS.with_borrow(|listeners| listeners.iter().filter_map(Weak::upgrade).collect());
    let (of_program, own): (Vec<_>, Vec<_>) =
        listeners.into_iter().partition(|listener| listener.is_of_program());
    // First, since the values of a channel may wait when they are dropped.
    for listener in of_program {
        // Dropped until its turn, it is not called.
        let listener = Rc::downgrade(&listener);
        let tell = move || {
            if let Some(listener) = listener.upgrade() {
                listener.host_lost(host);
            }
        };
        // Without memory for a fiber, only failing requests report the loss.
        let _ = fiber::Builder::new().spawn_local(tell);
    }
    for listener in own {
        let tell = AssertUnwindSafe(move || listener.host_lost(host));
        if let Err(panic) = catch_unwind(tell) {
            report(panic);
        }
    }
}

/// Forgets the listeners of this thread: its rack has ended.
pub(crate) fn forget() {
    let listeners = LISTENERS.take();
    drop(listeners);
}

/// Keeps a callback of [`on_host_lost`] until it is dropped.
#[must_use = "the callback is not called any more when this is dropped"]
pub struct OnHostLost {
    _callback: Rc<dyn Losses>,
}

struct Callback<F>(F);

impl<F: Fn(HostId)> Losses for Callback<F> {
    fn host_lost(&self, host: HostId) {
        (self.0)(host);
    }

    fn is_of_program(&self) -> bool {
        true
    }
}

/// Calls `callback`, in a fiber of its own on this thread, for every host that the rack loses from now on
/// until the result is dropped. The callback may wait; if it panics, only its fiber ends. For racks that go on
/// without a host:
/// [`OnPeerLoss::Return`](crate::OnPeerLoss::Return). [`live_hosts`](crate::live_hosts) returns the
/// hosts that are not lost yet.
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// # gossamer::Rack::new().threads(1).run(|| {
/// let lost = Rc::new(Cell::new(0));
/// let count = lost.clone();
/// let listening = gossamer::on_host_lost(move |_host| count.set(count.get() + 1));
/// // ... work that goes on without some of the hosts ...
/// drop(listening);
/// assert_eq!(lost.get(), 0);
/// # }).unwrap();
/// ```
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn on_host_lost(callback: impl Fn(HostId) + 'static) -> OnHostLost {
    trust_core::local_trustee();
    let callback: Rc<dyn Losses> = Rc::new(Callback(callback));
    listen(Rc::downgrade(&callback));
    OnHostLost { _callback: callback }
}

impl fmt::Debug for OnHostLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnHostLost")
    }
}

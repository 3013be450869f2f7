//! [`RdmaBell`]: where a thread sleeps: the carrier's bell, which completions end as well.

use crate::host::Host;
use primitive::sync::Ordering;
use std::{sync::Arc, time::Duration};
use transport_api::Bell;

/// The bell of one thread.
pub(crate) struct RdmaBell {
    host: Arc<Host>,
    thread: u32,
    carrier: Box<dyn Bell>,
}

impl RdmaBell {
    /// The bell of `thread`, which exists.
    pub(crate) fn new(host: Arc<Host>, thread: u32, carrier: Box<dyn Bell>) -> Self {
        Self { host, thread, carrier }
    }
}

impl Bell for RdmaBell {
    fn sleep(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        let Self { host, thread, carrier } = self;
        let seat = host.seat(*thread);
        seat.is_asleep.store(true, Ordering::Release);
        // What completes from now on makes the channel readable, which the carrier's bell watches;
        // what had completed before is taken here.
        let armed = seat.cq.arm();
        if armed.is_ok() && !host.pump(*thread) {
            carrier.sleep(timeout, &mut || ready() || seat.has_news());
        }
        // What has arrived at the carrier meanwhile is to be looked for.
        seat.sleeps.store(seat.sleeps.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        seat.cq.silence();
        seat.is_asleep.store(false, Ordering::Release);
        host.pump(*thread);
        host.attend(*thread);
        host.expect_ticks();
    }
}

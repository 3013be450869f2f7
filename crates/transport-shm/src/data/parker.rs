//! [`ShmParker`]: a futex in the memory of the host.

use std::sync::Arc;
use std::time::Duration;

use transport_api::Parker;

use crate::control::host::Host;

/// The parker of one thread.
pub(crate) struct ShmParker {
    host: Arc<Host>,
    thread: u32,
}

impl ShmParker {
    /// That of `thread`, which sleeps nowhere else.
    pub(crate) fn new(host: Arc<Host>, thread: u32) -> Self {
        Self { host, thread }
    }
}

impl Parker for ShmParker {
    fn park(&mut self, timeout: Duration, ready: &mut dyn FnMut() -> bool) {
        self.host.park(self.thread, timeout, ready);
    }
}

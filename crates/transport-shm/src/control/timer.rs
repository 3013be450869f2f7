//! Timeouts of the control plane where no service thread polls it: in a rack of one host, in which
//! an import may wait for an export. A thread waits for them, from the first timeout until there is
//! none.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use crate::control::host::Host;

impl Host {
    /// Has the control plane polled at its next timeout, if there is one.
    pub(super) fn watch_timeouts(self: &Arc<Self>) {
        let mut timer = self.timer.lock();
        if let Some(timer) = &*timer {
            // There may be an earlier timeout than it waits for, or none.
            timer.unpark();
        } else if self.plane.lock().control.next_timeout().is_some() {
            let host = Arc::downgrade(self);
            let builder = thread::Builder::new().name("gossamer-timer".into());
            // Without it, importers that block count the time themselves.
            let started = builder.spawn(move || run(&host));
            *timer = started.ok().map(|handle| handle.thread().clone());
        }
    }
}

fn run(host: &Weak<Host>) {
    loop {
        let Some(host) = host.upgrade() else { return };
        while let Some(output) = host.next_output(Instant::now()) {
            host.act(output);
        }
        let mut timer = host.timer.lock();
        let Some(next) = host.plane.lock().control.next_timeout() else {
            *timer = None;
            return;
        };
        drop(timer);
        drop(host);
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
    }
}

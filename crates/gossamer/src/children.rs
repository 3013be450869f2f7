//! [`Children`]: the processes of the other hosts, if this host has started them.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How long the other hosts of an ended rack may take to exit before they are killed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The processes of the other hosts, if this host has started them; killed on drop.
#[derive(Default)]
pub(crate) struct Children(pub(crate) Vec<Child>);

impl Children {
    /// Waits for the processes to exit, and kills those that do not exit in time; kills all of them
    /// at once if the rack has failed.
    pub(crate) fn shut_down(&mut self, ended_well: bool) {
        let deadline = Instant::now() + if ended_well { SHUTDOWN_GRACE } else { Duration::ZERO };
        for child in &mut self.0 {
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.kill();
    }

    fn kill(&mut self) {
        for mut child in self.0.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill();
    }
}

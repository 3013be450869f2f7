//! [`Children`]: the processes of the other hosts, if this host has started them.
//!
//! They and this process are one program for its user. So Ctrl-C, which a terminal sends to all
//! processes of its foreground group, goes to this process alone: what it does about it, by default or
//! by a handler of the program, holds for the rack. When this process ends, in whatever way, the kernel
//! kills the others, silently: a shell sees one program, and its exit status.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How long the other hosts of an ended rack may take to exit before they are killed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Keeps the terminal's signals from a process that `command` starts as another host.
#[cfg(feature = "shm")]
pub(crate) fn make_part_of_this(command: &mut std::process::Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

/// Ends this process, which was started as another host, with the process that started it.
#[cfg(feature = "shm")]
pub(crate) fn end_with_parent() -> std::io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};

    // A parent that has ended before this is noticed when the processes meet.
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

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

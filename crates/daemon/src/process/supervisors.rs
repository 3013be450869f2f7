//! [`Supervisors`]: the supervisors that a daemon has started. Its other children are processes of
//! jobs whose supervisors have ended.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::process::kill::{self, Look};

/// The supervisors of a daemon. The daemon is a subreaper: processes that supervisors leave become its
/// children.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supervisors(Arc<Mutex<Children>>);

#[derive(Debug, Default)]
struct Children {
    /// The supervisors, and children from before this was made.
    exempt: BTreeSet<i32>,
    /// Those that did not end when they were killed.
    stuck: BTreeSet<i32>,
}

impl Supervisors {
    /// Makes this process a subreaper. From now on each new child is a supervisor or was left by one.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn adopt() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let children = Children { exempt: kill::children()?, ..Children::default() };
        Ok(Self(Arc::new(Mutex::new(children))))
    }

    /// Starts a supervisor.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<Child> {
        // Locked until the supervisor is listed, so that no scan takes it for a stray.
        let mut children = self.0.lock();
        let child = command.spawn()?;
        children.exempt.extend(child.id().map(|pid| pid as i32));
        Ok(child)
    }

    /// Waits for the end of a supervisor, in a separate task.
    pub(crate) fn wait(&self, mut child: Child) -> JoinHandle<()> {
        let supervisors = self.clone();
        tokio::spawn(async move {
            let pid = child.id();
            // It has ended; its status does not matter.
            let _ = child.wait().await;
            if let Some(pid) = pid {
                supervisors.0.lock().exempt.remove(&(pid as i32));
            }
        })
    }

    /// Kills the processes that ended supervisors have left, and waits until they have ended. Processes
    /// that do not end within `timeout` are ignored from then on.
    ///
    /// # Errors
    /// If a process does not end.
    pub(crate) fn kill_strays(&self, timeout: Duration) -> io::Result<usize> {
        let mut last = BTreeSet::new();
        let killed = kill::kill_all(timeout, || {
            let Children { exempt, stuck } = &*self.0.lock();
            let look: Look = kill::strays(exempt, stuck)?;
            last = look.alive.iter().map(|process| process.pid).collect();
            Ok(look)
        });
        if killed.is_err() {
            self.0.lock().stuck.extend(last);
        }
        killed
    }

    /// Tries once more to end the processes that did not end before.
    pub(crate) fn retry(&self, timeout: Duration) -> io::Result<usize> {
        self.0.lock().stuck.clear();
        self.kill_strays(timeout)
    }
}

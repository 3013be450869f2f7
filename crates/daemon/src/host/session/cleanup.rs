//! The end of a session: kills the processes that a job has left, and removes its files.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::host::session::peer::Session;
use crate::host::state::State;
use crate::process::cgroup::Cgroup;
use crate::process::kill;

/// How long to wait for the killed descendants of a process to end.
const LEFT: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Kills the processes that a killed supervisor has left.
    pub(super) async fn kill_leftovers(&self, mark: &str, cgroup: Option<Cgroup>) {
        let (daemon, mark) = (self.daemon.clone(), mark.to_owned());
        let ended = blocking(move || {
            // All three, even if one fails.
            let in_cgroup = match (&daemon.cgroups, cgroup) {
                (Ok(cgroups), Some(cgroup)) => cgroups.end(cgroup),
                _ => Ok(()),
            };
            let strays = daemon.supervisors.kill_strays(LEFT);
            let marked = kill::kill_all(LEFT, kill::looks_for_marked(&mark));
            in_cgroup.and(strays).and(marked)
        });
        if let Err(error) = ended.await {
            tracing::warn!(%error, "cannot kill some processes of the job");
        }
    }

    /// Changes the files of a process on disk, which may block.
    pub(super) async fn on_disk<T: Send + 'static>(
        &self,
        mark: &str,
        act: fn(&State, &str) -> io::Result<T>,
    ) -> io::Result<T> {
        let (daemon, mark) = (self.daemon.clone(), mark.to_owned());
        blocking(move || act(&daemon.state, &mark)).await
    }
}

pub(super) async fn blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Not run, because the runtime is shutting down, and this task with it.
            Err(_) => pending().await,
        },
    }
}

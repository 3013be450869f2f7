//! The end of a session: ends the processes that a job has left, and removes its files.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::host::session::peer::Session;
use crate::host::state::State;
use crate::process::cgroup::Cgroup;
use crate::process::kill;

/// How long the descendants of a process may take to end when they are killed.
const LEFT: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Ends the processes that the supervisor left because it was killed itself.
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
            // Not started because the runtime is going: and this task with it.
            Err(_) => pending().await,
        },
    }
}

//! [`Daemon`]: the state that the tasks of a daemon share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daemon_protocol::HostReport;
use gossamer_job::SigningAuthority;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::host::config::Config;
use crate::host::jobs::Jobs;
use crate::host::metrics::Counts;
use crate::host::packages::Places;
use crate::host::state::State;
use crate::host::topology;
use crate::process::cgroups::Cgroups;
use crate::process::supervisors::Supervisors;
use crate::security::member::Member;

/// How long processes that survived a kill may take to end at the next attempt.
const ONCE_MORE: Duration = Duration::from_secs(1);

/// The state that the tasks of a daemon share.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) identity: Member,
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) supervisors: Supervisors,
    /// A cgroup for each process, or why cgroups cannot be used.
    pub(crate) cgroups: Result<Cgroups, String>,
    /// Notified when there is something to remove.
    pub(crate) sweep: Notify,
    /// The rack's authority, with the list of revoked certificates that is in force.
    pub(crate) signing: Mutex<Arc<SigningAuthority>>,
    pub(crate) packages: Places,
}

impl Daemon {
    /// The topology and the load of this host.
    pub(crate) fn report(&self) -> HostReport {
        let processors = std::thread::available_parallelism();
        HostReport {
            name: self.identity.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            running: self.jobs.running() as u32,
            processors: processors.map_or(1, |processors| processors.get() as u32),
            topology: topology::read(Path::new("/")),
            over_rdma: self.jobs.over_rdma(),
        }
    }

    /// The rack's authority, by which signatures of packages are verified.
    pub(crate) fn signing_authority(&self) -> Arc<SigningAuthority> {
        self.signing.lock().clone()
    }

    /// Removes files that jobs left, and tries again to end processes that survived.
    pub(crate) fn sweep(&self) {
        self.state.sweep();
        if let Err(error) = self.supervisors.retry(ONCE_MORE) {
            tracing::warn!(%error, "cannot kill processes that jobs left behind; trying again later");
        }
        if let Ok(cgroups) = &self.cgroups {
            cgroups.retry();
        }
    }
}

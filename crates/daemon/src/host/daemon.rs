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
    /// How many descriptors programs may have open; no limit if not set.
    pub(crate) open_files: Option<u64>,
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::security::acceptor::Acceptor;
    use crate::security::authority::init_rack;
    use crate::security::identity::Identity;

    /// The daemon of a new rack's host `a`, with the rack's files in `place`.
    pub(crate) fn daemon_in(place: &Path) -> (Arc<Daemon>, Acceptor) {
        let host = "a".parse().unwrap();
        init_rack(place, &"r".parse().unwrap(), Some((&host, "127.0.0.1"))).unwrap();
        let text = "identity = 'a'\nstate = 'state'\nlisten = '127.0.0.1:0'";
        std::fs::write(place.join("gossamer.toml"), text).unwrap();
        let config = Config::load(&place.join("gossamer.toml")).unwrap();
        let identity = Identity::load(&config.identity).unwrap();
        let member = identity.member.clone();
        let state = State::open(&config.state, config.store_bytes).unwrap();
        let acceptor = Acceptor::new(identity, config.identity.clone(), &config.state).unwrap();
        let daemon = Daemon {
            identity: member,
            config,
            state,
            jobs: Arc::default(),
            counts: Arc::default(),
            supervisors: Supervisors::default(),
            open_files: None,
            cgroups: Err("not in tests".into()),
            sweep: Notify::new(),
            signing: Mutex::new(acceptor.signing()),
            packages: Places::default(),
        };
        (Arc::new(daemon), acceptor)
    }
}

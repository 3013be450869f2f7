//! [`Plan`]: what happens in a round, derived from its seed, so that rounds can be repeated.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;
use gossamer::OnPeerLoss;

/// The planned moment of the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This long after the start of the leader, while the processes connect.
    Starting(Duration),
    /// This long after the work began.
    Running(Duration),
    /// This long after the work was done, while the rack ends.
    Ending(Duration),
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (when, after) = match self {
            Moment::Starting(after) => ("starting", after),
            Moment::Running(after) => ("running", after),
            Moment::Ending(after) => ("ending", after),
        };
        write!(f, "{when}+{:.1}ms", after.as_secs_f64() * 1e3)
    }
}

/// What the threads of a rack do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// They delegate to each other.
    Requests,
    /// They export segments and use those of others.
    Segments {
        /// Whether the processes are those of a job and connect over TCP. Otherwise they share
        /// memory.
        over_tcp: bool,
    },
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::Requests => "requests",
            Workload::Segments { over_tcp: false } => "segments",
            Workload::Segments { over_tcp: true } => "segments-tcp",
        })
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [
            Workload::Requests,
            Workload::Segments { over_tcp: false },
            Workload::Segments { over_tcp: true },
        ];
        let found = all.into_iter().find(|workload| workload.to_string() == text);
        found.ok_or_else(|| "expected `requests`, `segments` or `segments-tcp`".to_owned())
    }
}

/// What happens in a round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of the plan.
    pub seed: u64,
    /// The rack's policy for losses: odd seeds continue, even ones end.
    pub on_peer_loss: OnPeerLoss,
    /// The host whose process is killed. While the rack starts, an index into its processes in
    /// order of their start, modulo their number.
    pub victim: u32,
    /// When its process is killed.
    pub moment: Moment,
    /// What the threads do.
    pub workload: Workload,
}

impl Plan {
    /// Number of hosts.
    pub const HOSTS: u32 = 3;
    /// Threads per host.
    pub const THREADS: u32 = 2;
    /// Duration of the work: longer than the latest kill plus the time until it is detected.
    pub const WORK: Duration = Duration::from_millis(200);

    /// The plan of the round with this seed.
    pub fn of(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed);
        let below = |rng: &mut Rng, micros: u64| Duration::from_micros(rng.u64(..micros));
        let victim = rng.u32(..Self::HOSTS);
        let moment = match rng.u32(..10) {
            0 | 1 => Moment::Starting(below(&mut rng, 40_000)),
            2 | 3 => Moment::Ending(below(&mut rng, 3_000)),
            _ => Moment::Running(below(&mut rng, 60_000)),
        };
        let on_peer_loss = match seed % 2 {
            0 => OnPeerLoss::EndRack,
            _ => OnPeerLoss::Return,
        };
        let workload = match rng.u32(..4) {
            0 | 1 => Workload::Requests,
            2 => Workload::Segments { over_tcp: false },
            _ => Workload::Segments { over_tcp: true },
        };
        Plan { seed, on_peer_loss, victim, moment, workload }.with(workload)
    }

    /// The same with another workload.
    #[must_use]
    pub fn with(mut self, workload: Workload) -> Plan {
        self.workload = workload;
        if let Moment::Starting(after) = self.moment
            && self.over_tcp()
        {
            // Only a daemon ends a job whose processes cannot connect: `xtask chaos --net`.
            self.moment = Moment::Running(after);
        }
        self
    }

    /// Whether the processes connect over TCP.
    pub fn over_tcp(&self) -> bool {
        self.workload == Workload::Segments { over_tcp: true }
    }

    /// Whether the rack continues after the loss of a host other than the leader.
    pub fn continues(&self) -> bool {
        self.on_peer_loss == OnPeerLoss::Return
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_cover_every_victim_moment_and_policy() {
        let plans: Vec<_> = (0..60).map(Plan::of).collect();
        for victim in 0..Plan::HOSTS {
            assert!(plans.iter().any(|plan| plan.victim == victim && plan.continues()));
            assert!(plans.iter().any(|plan| plan.victim == victim && !plan.continues()));
        }
        assert!(plans.iter().any(|plan| matches!(plan.moment, Moment::Starting(_))));
        assert!(plans.iter().any(|plan| matches!(plan.moment, Moment::Running(_))));
        assert!(plans.iter().any(|plan| matches!(plan.moment, Moment::Ending(_))));
        assert_eq!(Plan::of(7).moment, Plan::of(7).moment);
    }

    #[test]
    fn seeds_cover_every_workload_and_its_name_is_read() {
        for name in ["requests", "segments", "segments-tcp"] {
            let workload: Workload = name.parse().expect("a workload");
            assert_eq!(workload.to_string(), name);
            assert!((0..60).any(|seed| Plan::of(seed).workload == workload), "{name}");
        }
        assert!("segment".parse::<Workload>().is_err());
        let jobs = (0..60).map(|seed| Plan::of(seed).with(Workload::Segments { over_tcp: true }));
        assert!(jobs.clone().all(|plan| !matches!(plan.moment, Moment::Starting(_))));
        assert!(jobs.clone().any(|plan| plan.continues() && plan.victim > 0));
    }
}

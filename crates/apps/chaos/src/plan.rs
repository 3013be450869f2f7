//! [`Plan`]: what happens in a round, derived from its seed, so that rounds can be repeated.

use std::fmt;
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
        Plan { seed, on_peer_loss, victim, moment }
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
}

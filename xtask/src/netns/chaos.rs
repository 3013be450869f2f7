//! `cargo xtask chaos --net`: jobs on three hosts, each of which loses a process at a random moment.
//! All processes of the job must end on all hosts within a second, and the report and the exit status
//! must name the first.

use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::netns::check::{ENDLESS, HOSTS, Moment, kill_one, with_rack};
use crate::netns::rack::Rack;
use crate::programs::seed_or_new;
use crate::workspace::Workspace;

/// Runs `rounds` rounds.
pub(crate) fn run(workspace: &Workspace, rounds: u32, seed: Option<u64>) -> Result<()> {
    let seed = seed_or_new(seed)?;
    workspace.build_programs()?;
    with_rack(workspace, |rack| {
        let mut times = rounds_of(rack, rounds, seed)
            .with_context(|| format!("repeat it with --net --rounds {rounds} --seed {seed}"))?;
        times.sort_unstable();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "chaos: {rounds} jobs on three hosts lost a process and ended: after {median:.0?} in the \
             median, {longest:.0?} at most (seed {seed})"
        );
        Ok(())
    })
}

/// The time until all processes had ended, for each round.
fn rounds_of(rack: &Rack, rounds: u32, seed: u64) -> Result<Vec<Duration>> {
    let mut rng = Rng::with_seed(seed);
    let mut times = Vec::new();
    for round in 1..=rounds {
        let (victim, moment) = plan(&mut rng);
        let host = HOSTS[victim as usize];
        let took = kill_one(rack, victim, moment, ENDLESS)
            .with_context(|| format!("round {round}: killed a process of {host}, {moment:.1?}"))?;
        println!(
            "round {round}: killed a process of {host}, {moment:.1?}; all ended after {took:.1?}"
        );
        times.push(took);
    }
    Ok(times)
}

/// The host whose process is killed in a round, and when.
fn plan(rng: &mut Rng) -> (u32, Moment) {
    let victim = rng.u32(..HOSTS.len() as u32);
    let moment = match rng.u32(..3) {
        0 => Moment::Starting(Duration::from_micros(rng.u64(..100_000))),
        _ => Moment::Working(Duration::from_micros(rng.u64(..300_000))),
    };
    (victim, moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_kill_on_every_host_at_both_moments() {
        let mut rng = Rng::with_seed(1);
        let plans: Vec<_> = (0..60).map(|_| plan(&mut rng)).collect();
        for victim in 0..HOSTS.len() as u32 {
            let mut of = plans.iter().filter(|(other, _)| *other == victim);
            assert!(of.any(|(_, moment)| matches!(moment, Moment::Starting(_))));
            assert!(of.any(|(_, moment)| matches!(moment, Moment::Working(_))));
        }
    }
}

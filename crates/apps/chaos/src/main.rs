//! `chaos`: kills processes of racks at random moments and checks that nothing hangs, nothing is
//! left behind, and every survivor reports the right host as lost.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gossamer_chaos::round::Runner;
use gossamer_chaos::{Plan, RoundReport, Workload, rack};

/// Kill processes of racks at random moments and check the survivors.
///
/// Each round starts a rack of three processes with two threads each, which send requests to each
/// other or use each other's segments, and kills one process. With an even seed the rack must end at once and report the lost
/// host. With an odd seed the other processes must continue and agree on every sum.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Number of rounds.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Seed of the first round, incremented for each further round [default: random].
    #[arg(long)]
    seed: Option<u64>,
    /// What every rack does: requests, segments or segments-tcp [default: as the seed says].
    #[arg(long)]
    workload: Option<Workload>,
    /// Run the rack of the round with this seed.
    #[arg(long, hide = true)]
    rack: Option<u64>,
}

impl Arguments {
    /// What happens in the round with this seed.
    fn plan(&self, seed: u64) -> Plan {
        let plan = Plan::of(seed);
        match self.workload {
            Some(workload) => plan.with(workload),
            None => plan,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.rack {
        return rack::run_rack(&arguments.plan(seed));
    }
    if arguments.rounds == 0 {
        eprintln!("chaos: invalid --rounds 0: expected at least 1");
        return ExitCode::FAILURE;
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    match run(&arguments, seed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: cannot run a round: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the rounds and prints a line for each; returns whether all passed.
fn run(arguments: &Arguments, seed: u64) -> std::io::Result<bool> {
    let (runner, rounds) = (Runner::new()?, arguments.rounds);
    let mut reports = Vec::new();
    for number in 0..rounds {
        let report = runner.run(arguments.plan(seed.wrapping_add(number)))?;
        println!("round {}/{rounds}: {report}", number + 1);
        print_violations(&report);
        reports.push(report);
    }
    Ok(print_summary(&reports))
}

fn print_violations(report: &RoundReport) {
    if report.violations.is_empty() {
        return;
    }
    for violation in &report.violations {
        eprintln!("  violation: {violation}");
    }
    for line in &report.transcript {
        eprintln!("  | {line}");
    }
    let Plan { seed, workload, .. } = report.plan;
    eprintln!("  to repeat: chaos --rounds 1 --seed {seed} --workload {workload}");
}

fn print_summary(reports: &[RoundReport]) -> bool {
    let count = |what: &dyn Fn(&&RoundReport) -> bool| reports.iter().filter(what).count();
    let leaders = count(&|report| report.kill.is_some_and(|kill| kill.leader));
    let others = count(&|report| report.kill.is_some_and(|kill| !kill.leader));
    let late = reports.len() - leaders - others;
    let slowest = reports.iter().filter(|report| !report.plan.continues());
    let slowest = slowest.map(|report| report.end.as_millis()).max().unwrap_or(0);
    let operations: u64 = reports.iter().map(|report| report.operations).sum();
    let failed = count(&|report| !report.violations.is_empty());
    println!(
        "{} rounds: killed {leaders} leaders and {others} others, {late} too late; {operations} \
         operations; slowest end of an end-rack round {slowest} ms; {failed} failed",
        reports.len()
    );
    println!("{}", detection_latency(reports));
    failed == 0
}

/// The time that continuing processes took to detect a loss.
fn detection_latency(reports: &[RoundReport]) -> String {
    let mut detected: Vec<Duration> =
        reports.iter().flat_map(|report| report.detected.iter().copied()).collect();
    detected.sort_unstable();
    let Some(slowest) = detected.last() else {
        return "no process was still working when one was killed".to_owned();
    };
    let at = |percent: usize| detected[(detected.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    format!(
        "SIGKILL to report by a working process ({} reports): median {:.1} ms, p90 {:.1} ms, max \
         {:.1} ms",
        detected.len(),
        at(50),
        at(90),
        slowest.as_secs_f64() * 1e3
    )
}

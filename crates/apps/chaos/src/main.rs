//! Kills processes of racks at random moments, and checks that nothing hangs, nothing is left
//! behind, and everybody is told the right thing.

use clap::Parser;
use gossamer_chaos::{Plan, Verdict, rack, round::Judge};
use std::{process::ExitCode, time::Duration};

/// Kills processes of racks at random moments and checks what becomes of the rest.
///
/// Each round starts a rack of three processes with two threads each, which work on each other's
/// properties, and kills one of them. Even seeds: the rack must end at once and say who was lost.
/// Odd seeds: the others go on, and must agree on every sum.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many rounds to play.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// The first round's seed; each round's is one more than the last. Random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Be the rack of the round with this seed.
    #[arg(long, hide = true)]
    rack: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.rack {
        return rack::run_rack(&Plan::of(seed));
    }
    if arguments.rounds == 0 {
        eprintln!("chaos: no rounds would prove nothing; ask for one at least");
        return ExitCode::FAILURE;
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    match play(arguments.rounds, seed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: cannot play a round: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the rounds and tells of each; whether all went well.
fn play(rounds: u64, seed: u64) -> std::io::Result<bool> {
    let judge = Judge::new()?;
    let mut verdicts = Vec::new();
    for number in 0..rounds {
        let verdict = judge.play(Plan::of(seed.wrapping_add(number)))?;
        println!("round {}/{rounds}: {verdict}", number + 1);
        tell_faults(&verdict);
        verdicts.push(verdict);
    }
    Ok(sum_up(&verdicts))
}

fn tell_faults(verdict: &Verdict) {
    if verdict.faults.is_empty() {
        return;
    }
    for fault in &verdict.faults {
        eprintln!("  fault: {fault}");
    }
    for line in &verdict.transcript {
        eprintln!("  | {line}");
    }
    eprintln!("  to repeat it: chaos --rounds 1 --seed {}", verdict.plan.seed);
}

fn sum_up(verdicts: &[Verdict]) -> bool {
    let count = |what: &dyn Fn(&&Verdict) -> bool| verdicts.iter().filter(what).count();
    let leaders = count(&|verdict| verdict.hit.is_some_and(|hit| hit.leader));
    let others = count(&|verdict| verdict.hit.is_some_and(|hit| !hit.leader));
    let late = verdicts.len() - leaders - others;
    let slowest = verdicts.iter().filter(|verdict| !verdict.plan.goes_on());
    let slowest = slowest.map(|verdict| verdict.end.as_millis()).max().unwrap_or(0);
    let operations: u64 = verdicts.iter().map(|verdict| verdict.operations).sum();
    let failed = count(&|verdict| !verdict.faults.is_empty());
    println!(
        "{} rounds: killed {leaders} leaders and {others} others, {late} too late; {operations} \
         operations; the slowest end of a rack that was to end took {slowest} ms; {failed} failed",
        verdicts.len()
    );
    println!("{}", how_soon(verdicts));
    failed == 0
}

/// How long those who went on working took to notice a loss.
fn how_soon(verdicts: &[Verdict]) -> String {
    let mut noticed: Vec<Duration> =
        verdicts.iter().flat_map(|verdict| verdict.noticed.iter().copied()).collect();
    noticed.sort_unstable();
    let Some(slowest) = noticed.last() else {
        return "nobody was left who could have noticed a loss at work".to_owned();
    };
    let at = |percent: usize| noticed[(noticed.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    format!(
        "from SIGKILL to the report of a process at work, {} times: median {:.1} ms, 90% within \
         {:.1} ms, the slowest {:.1} ms",
        noticed.len(),
        at(50),
        at(90),
        slowest.as_secs_f64() * 1e3
    )
}

//! `kv bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gossamer::Topology;
use gossamer_kv::bench::rack::RackCandidate;
use gossamer_kv::bench::{Candidate, Outcome, comparison, json, lock_based, plot, text};
use gossamer_kv::fibers::run_blocking;
use gossamer_kv::ycsb::{Workload, WorkloadError};
use gossamer_plot::file::ResultsFile;

use crate::{RackArgs, with_causes};

/// Default number of rounds with `--vs`.
const COMPARISON_ROUNDS: u32 = 5;

#[derive(Args, Clone)]
pub(super) struct Bench {
    #[command(flatten)]
    rack: RackArgs,
    /// Core workload (a to f, or workloada to workloadf) or path of a workload file
    #[arg(long, default_value = "c")]
    workload: String,
    /// Number of records to load (property recordcount)
    #[arg(long)]
    records: Option<u64>,
    /// Maximum number of operations (property operationcount)
    #[arg(long)]
    operations: Option<u64>,
    /// Maximum run time in seconds, over all rounds; 0 for no limit (property maxexecutiontime)
    #[arg(long)]
    seconds: Option<u64>,
    /// Clients per thread of the rack, one fiber each
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    fibers: u64,
    /// Also run lock-based stores, in one process with as many threads as the rack
    #[arg(long)]
    vs: bool,
    /// Number of rounds, each on a fresh store; with --vs the stores are interleaved [default: 1,
    /// with --vs 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Write the results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Plot throughput and latencies to OUT.SVG
    #[arg(long, value_name = "OUT.SVG")]
    plot: Option<PathBuf>,
    /// Set a workload property
    #[arg(short = 'p', value_name = "KEY=VALUE")]
    properties: Vec<String>,
}

impl Bench {
    pub(super) fn run(self) -> ExitCode {
        self.rack.clone().run(move || self.main())
    }

    fn main(self) -> Result<(), String> {
        let rounds = self.rounds.unwrap_or(if self.vs { COMPARISON_ROUNDS } else { 1 });
        let mut workload = self.workload().map_err(|error| with_causes(&error))?;
        workload.max_execution_time = workload.max_execution_time.map(|time| time / rounds);
        let json = self.json.map(ResultsFile::open).transpose()?;
        let plot = self.plot.map(ResultsFile::open).transpose()?;
        let mut candidates: Vec<Box<dyn Candidate>> =
            vec![Box::new(RackCandidate::new(self.fibers))];
        if self.vs {
            let threads = gossamer::threads().count() as u64;
            for store in lock_based::candidates(threads) {
                candidates.push(Box::new(BlockingCandidate::new(store)));
            }
        }
        let scores = comparison::compare(&mut candidates, &workload, u64::from(rounds))?;
        println!("{}", rack_line(&gossamer::topology()));
        print!("{}", text::render(&workload, &scores));
        if let Some(file) = json {
            let figures = json::figures(&workload, &scores);
            let figures =
                serde_json::to_string_pretty(&figures).map_err(|error| error.to_string())?;
            file.write(&figures)?;
        }
        if let Some(file) = plot {
            file.write(&plot::render(&workload, &scores))?;
        }
        let failed: u64 = scores.iter().map(|score| score.run().failed()).sum();
        match failed {
            0 => Ok(()),
            _ => Err(format!(
                "{failed} operations failed: a record was missing or a write was refused"
            )),
        }
    }

    fn workload(&self) -> Result<Workload, WorkloadError> {
        let (name, mut properties) = Workload::properties(&self.workload)?;
        for assignment in &self.properties {
            properties.override_with(assignment)?;
        }
        let flags = [
            ("recordcount", self.records),
            ("operationcount", self.operations),
            ("maxexecutiontime", self.seconds),
        ];
        for (key, value) in flags {
            if let Some(value) = value {
                properties.set(key, value);
            }
        }
        let (workload, warnings) = Workload::new(&name, &properties)?;
        for warning in warnings {
            eprintln!("kv: {warning}");
        }
        Ok(workload)
    }
}

/// The rack that was measured, in one line.
fn rack_line(topology: &Topology) -> String {
    let hosts: usize = topology.machines.iter().map(|machine| machine.hosts.len()).sum();
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let processes = count(hosts, "process", "processes");
    let threads = count(topology.threads as usize, "thread", "threads");
    let within_machine = topology.machines.iter().find_map(|machine| match machine.hosts[..] {
        [one, other, ..] => topology.transport(one, other),
        _ => None,
    });
    let between_machines = match &topology.machines[..] {
        [one, other, ..] => topology.transport(one.hosts[0], other.hosts[0]),
        _ => None,
    };
    match (within_machine, between_machines) {
        (Some(within), Some(between)) if within != between => format!(
            "rack: {processes} of {threads}, over {within} on a machine and {between} between machines"
        ),
        (Some(transport), _) | (None, Some(transport)) => {
            format!("rack: {processes} of {threads}, over {transport}")
        }
        (None, None) => format!("rack: {processes} of {threads}"),
    }
}

/// A store that runs on plain threads: the rack is idle while it runs.
struct BlockingCandidate {
    name: String,
    /// `None` while the store runs.
    store: Option<Box<dyn Candidate + Send>>,
}

impl BlockingCandidate {
    fn new(store: Box<dyn Candidate + Send>) -> Self {
        Self { name: store.name().to_owned(), store: Some(store) }
    }
}

impl Candidate for BlockingCandidate {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&mut self, workload: &Workload, round: u64) -> Result<Outcome, String> {
        let Some(mut store) = self.store.take() else {
            return Err("the store failed in an earlier round".to_owned());
        };
        let workload = workload.clone();
        let (store, outcome) = run_blocking(move || {
            let outcome = store.run(&workload, round);
            (store, outcome)
        });
        self.store = Some(store);
        outcome
    }
}

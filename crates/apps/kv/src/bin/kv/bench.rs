//! `kv bench`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gossamer_kv::bench::rack::RackContestant;
use gossamer_kv::bench::{Contestant, Outcome, baseline, contest, json, plot, text};
use gossamer_kv::fibers::off_rack;
use gossamer_kv::ycsb::{Workload, WorkloadError};

use crate::RackArgs;

/// Rounds of a comparison unless asked for otherwise.
const ROUNDS_OF_COMPARISON: u32 = 5;

#[derive(Args, Clone)]
pub(super) struct Bench {
    #[command(flatten)]
    rack: RackArgs,
    /// A core workload, a to f or workloada to workloadf, or the path of a workload file
    #[arg(long, default_value = "c")]
    workload: String,
    /// Records to load (the property recordcount)
    #[arg(long)]
    records: Option<u64>,
    /// Operations to run, at most (the property operationcount)
    #[arg(long)]
    operations: Option<u64>,
    /// Seconds to run, at most, over all rounds (the property maxexecutiontime; 0 for no limit)
    #[arg(long)]
    seconds: Option<u64>,
    /// Clients on each thread of the rack, a fiber each
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    fibers: u64,
    /// Run lock-based stores too, in one process with as many threads as the rack has
    #[arg(long)]
    vs: bool,
    /// Rounds, each on a fresh store; with --vs the stores take turns [default: 1, with --vs 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw throughput and latencies into this file
    #[arg(long, value_name = "OUT.SVG")]
    plot: Option<PathBuf>,
    /// Set a property of the workload
    #[arg(short = 'p', value_name = "KEY=VALUE")]
    properties: Vec<String>,
}

impl Bench {
    pub(super) fn run(self) -> ExitCode {
        self.rack.clone().run(move || self.main())
    }

    fn main(self) -> Result<(), String> {
        let rounds = self.rounds.unwrap_or(if self.vs { ROUNDS_OF_COMPARISON } else { 1 });
        let mut workload = self.workload().map_err(|error| error.to_string())?;
        workload.max_execution_time = workload.max_execution_time.map(|time| time / rounds);
        let json = self.json.map(Destination::open).transpose()?;
        let plot = self.plot.map(Destination::open).transpose()?;
        let mut contestants: Vec<Box<dyn Contestant>> =
            vec![Box::new(RackContestant::new(self.fibers))];
        if self.vs {
            let threads = gossamer::threads().count() as u64;
            for store in baseline::contestants(threads) {
                contestants.push(Box::new(OffRack::new(store)));
            }
        }
        let scores = contest::contest(&mut contestants, &workload, u64::from(rounds))?;
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
            _ => Err(format!("{failed} operations did not find what they should have found")),
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

/// A store whose threads are no fibers: while it runs, the rack's threads have nothing to do.
struct OffRack {
    name: String,
    /// There except while it runs.
    store: Option<Box<dyn Contestant + Send>>,
}

impl OffRack {
    fn new(store: Box<dyn Contestant + Send>) -> Self {
        Self { name: store.name().to_owned(), store: Some(store) }
    }
}

impl Contestant for OffRack {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&mut self, workload: &Workload, round: u64) -> Result<Outcome, String> {
        let Some(mut store) = self.store.take() else {
            return Err("it failed in an earlier round".to_owned());
        };
        let workload = workload.clone();
        let (store, outcome) = off_rack(move || {
            let outcome = store.run(&workload, round);
            (store, outcome)
        });
        self.store = Some(store);
        outcome
    }
}

/// A file for results, opened before they are there: a long run must not end with the news that it
/// cannot be kept.
struct Destination {
    path: PathBuf,
    file: fs::File,
}

impl Destination {
    /// Leaves what the file holds until there is something better.
    fn open(path: PathBuf) -> Result<Self, String> {
        match OpenOptions::new().write(true).create(true).truncate(false).open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(format!("cannot write {}: {error}", path.display())),
        }
    }

    fn write(mut self, text: &str) -> Result<(), String> {
        // A device or a pipe has no length.
        let is_file = self.file.metadata().is_ok_and(|data| data.is_file());
        let empty = if is_file { self.file.set_len(0) } else { Ok(()) };
        empty
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

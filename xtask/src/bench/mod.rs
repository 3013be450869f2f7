//! `cargo xtask bench`: the measurements of the pages docs/performance*.md. Each is a program in a
//! workspace of its own under `benchmarks`; [`rdma`] runs in a virtual machine with RDMA devices.
//! [`figures`] writes what they measured into the pages.

mod figures;
mod graph;
mod rdma;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};

use self::figures::Figures;
use self::graph::Graph;
use crate::step::Step;
use crate::workspace::Workspace;

/// The commands of `cargo xtask bench`.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Measure delegation, fibers and locks: the figures of docs/performance.md
    Core(Measuring),
    /// Measure `kv serve` beside memcached, with many clients: the suite `memcached` of core
    Memcached(Measuring),
    /// Measure delegation over TCP beside remote procedure calls: the figures of
    /// docs/performance-tcp.md
    Tcp(Measuring),
    /// Measure delegation over RDMA beside perftest, in a virtual machine that has RDMA devices: the
    /// figures of docs/performance-rdma.md
    Rdma(RdmaMeasuring),
    /// Measure fetch-and-add on many objects by locks, atomics, delegation, MPI and UCX; `-- --help` lists
    /// what can be chosen
    Fadd {
        /// Options of `core-bench fadd`
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// Measure Graph500 on one process, two and four, beside the reference implementation and petgraph:
    /// the figures of docs/graph.md
    Graph(Graph),
    /// Write measured figures into the marked parts of the documents, and draw their plots
    Figures(Figures),
}

/// The options of all measurements.
#[derive(Args)]
pub(crate) struct Measuring {
    /// Write the results to this file, as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Number of interleaved rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Only measure cases whose names contain TEXT
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Also print every sample
    #[arg(long)]
    raw: bool,
}

/// The options of measurements over RDMA.
#[derive(Args)]
pub(crate) struct RdmaMeasuring {
    #[command(flatten)]
    pub(crate) how: Measuring,
    /// Draw throughput over numbers of queue pairs into this file, as SVG
    #[arg(long, requires = "json")]
    pub(crate) plot: Option<PathBuf>,
}

impl Measuring {
    /// Adds these options to `step`, with `json` for the file of the results.
    pub(crate) fn applied_to(&self, mut step: Step, json: Option<&Path>) -> Step {
        step = step.arg("--rounds").arg(self.rounds.to_string());
        if let Some(file) = json {
            step = step.arg("--json").arg(file);
        }
        if let Some(filter) = &self.filter {
            step = step.arg("--filter").arg(filter);
        }
        if self.raw { step.arg("--raw") } else { step }
    }
}

/// `cargo xtask bench`.
pub(crate) fn run(workspace: &Workspace, bench: &Bench) -> Result<()> {
    let (step, how) = match bench {
        Bench::Core(how) => {
            say_if_ucx_is_missing(&workspace.root);
            say_if_stress_ng_is_missing(&workspace.root);
            say_if_prototype_is_missing();
            let folder = workspace.benchmarks("core")?;
            (Step::cargo(&folder, "run --release --bin core-bench --"), how)
        }
        Bench::Memcached(how) => {
            say_if_memcached_is_missing(&workspace.root);
            let folder = workspace.benchmarks("core")?;
            let program = "run --release --bin core-bench -- --suite memcached";
            (Step::cargo(&folder, program), how)
        }
        Bench::Tcp(how) => {
            say_if_ucx_is_missing(&workspace.root);
            let folder = workspace.benchmarks("tcp")?;
            (Step::cargo(&folder, "run --release --bin tcp-bench --"), how)
        }
        Bench::Rdma(how) => return rdma::run(workspace, how),
        Bench::Fadd { options } => return fadd(workspace, options),
        Bench::Graph(options) => return graph::run(workspace, options),
        Bench::Figures(lists) => return figures::run(&workspace.root, lists),
    };
    // The program runs in another folder; the file is relative to this one.
    let here = env::current_dir()?;
    let json = how.json.as_ref().map(|file| here.join(file));
    let step = step.arg("--kv").arg(build_kv(workspace)?);
    how.applied_to(step, json.as_deref()).run()
}

/// `cargo xtask bench fadd`.
fn fadd(workspace: &Workspace, options: &[String]) -> Result<()> {
    say_if_ucx_is_missing(&workspace.root);
    let folder = workspace.benchmarks("core")?;
    Step::cargo(&folder, "build --release --bin core-bench").run()?;
    // It runs here, so that the names of files are relative to this folder.
    let program = folder.join("target/release/core-bench");
    let step = Step::program(&env::current_dir()?, program, "fadd");
    options.iter().fold(step, Step::arg).run()
}

/// Builds the key-value store, which is measured by its own program, and serves memcached's protocol
/// beside GETs of ours.
fn build_kv(workspace: &Workspace) -> Result<PathBuf> {
    Step::cargo(&workspace.root, "build --release --package gossamer-kv --bin kv").run()?;
    Ok(workspace.target().join("release/kv"))
}

/// Cargo cannot fetch it; this explains the missing rows.
fn say_if_ucx_is_missing(root: &Path) {
    if !Step::program(root, "sh", "-c").arg("command -v ucx_perftest").works() {
        eprintln!("bench: no ucx_perftest, so no comparison with UCX (apt-get install ucx-utils)");
    }
}

fn say_if_memcached_is_missing(root: &Path) {
    if !Step::program(root, "sh", "-c").arg("command -v memcached").works() {
        eprintln!("bench: no memcached, so nothing to compare with (apt-get install memcached)");
    }
}

fn say_if_stress_ng_is_missing(root: &Path) {
    if !Step::program(root, "sh", "-c").arg("command -v stress-ng").works() {
        eprintln!(
            "bench: no stress-ng, so no jams on a loaded machine (apt-get install stress-ng)"
        );
    }
}

fn say_if_prototype_is_missing() {
    match env::var_os("GOSSAMER_PROTOTYPE") {
        Some(folder) if Path::new(&folder).is_dir() => {}
        Some(folder) => eprintln!("bench: GOSSAMER_PROTOTYPE={folder:?} is not a folder"),
        None => eprintln!(
            "bench: no comparison with the delegation prototype (GOSSAMER_PROTOTYPE names its folder)"
        ),
    }
}

//! `core-bench fadd`: fetch-and-add on many objects, chosen at random: the thesis's figure 8 and its
//! locks, from one program.
//!
//! Each of some threads adds one to an object, again and again. [`draws`] says which: the same draws
//! for every candidate. Objects belong to the threads in turn, so that `--local` can say which part of
//! the operations is on a thread's own objects; locks know no owner, but get the same draws.
//!
//! - [`draws`]: plans, and the objects that their threads choose.
//! - [`locks`]: an array of locks, or of atomics.
//! - [`delegated`]: Gossamer, in threads of one process and in processes of one thread each.
//! - [`mpi`]: `MPI_Fetch_and_op` of Open MPI between processes.
//! - [`plot`]: throughput over objects.

pub(crate) mod delegated;
mod draws;
mod locks;
mod mpi;
mod plot;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bench_kit::harness::{Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::cores::Cores;
use bench_kit::measure::sampling::Reading;
use bench_kit::session;
use bench_kit::ucx::{self, Test};
use clap::Args;

use self::draws::{Distribution, Plan};
use self::mpi::Mpi;

/// The options of `core-bench fadd`.
#[derive(Debug, Args)]
pub(crate) struct Fadd {
    #[command(flatten)]
    session: session::Options,
    /// Numbers of objects
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [1, 16, 256, 4096, 65_536, 1_048_576])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    objects: Vec<u32>,
    /// How objects are chosen
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Distribution::Uniform, Distribution::Zipfian])]
    distribution: Vec<Distribution>,
    /// Threads, or processes with one thread each
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Percentage of operations on objects of the own thread [default: as chance has it]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    local: Option<u8>,
    /// Draw throughput over objects into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The suites of these options, each with its plan.
fn suites(options: &Fadd) -> Result<Vec<(Plan, Suite)>, Box<dyn Error>> {
    let mut suites = Vec::new();
    let mpi = Mpi::default();
    for &distribution in &options.distribution {
        for &objects in &options.objects {
            let (threads, local) = (options.threads, options.local);
            if local.is_some() && objects < threads {
                return Err(format!(
                    "--local needs an object for each of {threads} threads, got --objects {objects}"
                )
                .into());
            }
            let plan = Plan { objects, distribution, threads, local };
            suites.push((plan, suite(plan, &mpi)));
        }
    }
    Ok(suites)
}

/// All candidates of a plan.
fn suite(plan: Plan, mpi: &Mpi) -> Suite {
    let about = format!("{plan}; an operation is a fetch-and-add");
    let placement = match plan.threads {
        1 => Placement::SingleThread,
        2 => Placement::Pair,
        _ => Placement::Unpinned,
    };
    let mut suite = Suite::new(plan.name(), about, placement);
    locks::cases(plan).into_iter().for_each(|case| suite.push(case));
    let best = || Peer::best("lock/");
    delegated::in_threads(plan).into_iter().for_each(|case| suite.push(case.beside(best())));
    if plan.threads > 1 {
        let case = mpi.case(plan);
        let peer = Peer::case(case.name());
        suite.push(case);
        suite.push(delegated::in_processes(plan).beside(peer));
    }
    if plan.objects == 1 && plan.threads == 2 {
        suite.push(ucx_fadd());
    }
    suite
}

/// UCX's own benchmark: one process adds to a word of another, and waits for each result.
fn ucx_fadd() -> Case {
    Case::new("ucx/ucp_fadd, one outstanding", Unit::Mops, |sampler| {
        let expected = Duration::from_nanos(100);
        let run = ucx::Run { test: Test::FetchAdd, over: "posix", bytes: 8, expected };
        Ok(Reading::of(run.per_second(sampler)? / 1e6))
    })
}

/// `core-bench fadd`; returns whether every case whose program is on this machine was measured.
///
/// # Errors
/// If the options contradict each other, nothing was measured, or a file cannot be written.
pub(crate) fn run(
    options: &Fadd,
    header: impl FnOnce(Cores) -> String,
) -> Result<bool, Box<dyn Error>> {
    let (plans, suites): (Vec<Plan>, Vec<Suite>) = suites(options)?.into_iter().unzip();
    let Some((cores, mut suites)) = options.session.begin(suites, header)? else {
        return Ok(true);
    };
    let (rows, is_complete) = options.session.measure(cores, &mut suites)?;
    if let Some(file) = &options.plot {
        fs::write(file, plot::render(&plans, &rows))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(is_complete)
}

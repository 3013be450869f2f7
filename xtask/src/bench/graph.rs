//! `cargo xtask bench graph`: the Graph500 benchmark of `crates/apps/graph` on one process, two and four,
//! over shared memory and TCP, interleaved with the reference implementation over MPI, which its user has
//! built elsewhere, and with petgraph. Prints the tables of docs/graph.md.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::report::{Program, Report, Run, Setting};
use crate::step::Step;
use crate::workspace::Workspace;

/// The options.
#[derive(Args)]
pub(crate) struct Graph {
    /// The reference implementation's program graph500_reference_bfs_sssp (github.com/graph500/graph500,
    /// built with OpenMPI, with -fcommon if the compiler is GCC 10 or newer); without it, only ours and
    /// petgraph are measured
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Graphs have 2^SCALE vertices, and 16 times as many edges; weak scaling begins at the smallest
    #[arg(long, value_name = "SCALES", value_delimiter = ',', default_value = "18,19,20")]
    #[arg(value_parser = clap::value_parser!(u32).range(5..=24))]
    scale: Vec<u32>,
    /// Number of interleaved rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Searches in a round; the reference always makes 64
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(5..))]
    roots: u32,
    /// Write the results to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Graph {
    /// What is measured: one process and two at each scale, and weak scaling, as many vertices for each
    /// of one, two and four processes.
    fn settings(&self) -> BTreeSet<Setting> {
        let mut settings = BTreeSet::new();
        let smallest = self.scale.iter().copied().min().unwrap_or_default();
        let weak = [(smallest, 1), (smallest + 1, 2), (smallest + 2, 4)];
        let each = self.scale.iter().flat_map(|scale| [(*scale, 1), (*scale, 2)]);
        for (scale, processes) in each.chain(weak) {
            let setting = |program| Setting { scale, processes, program };
            settings.insert(setting(Program::Gossamer));
            if self.reference.is_some() {
                settings.insert(setting(Program::Reference));
            }
            if processes == 1 {
                settings.insert(setting(Program::Petgraph));
            } else if weak.contains(&(scale, processes)) {
                settings.insert(setting(Program::OverTcp));
            }
        }
        settings
    }
}

/// The programs that are run.
struct Programs {
    gossamer: PathBuf,
    petgraph: PathBuf,
    reference: Option<PathBuf>,
}

/// `cargo xtask bench graph`.
pub(crate) fn run(workspace: &Workspace, options: &Graph) -> Result<()> {
    Step::cargo(&workspace.root, "build --release --package gossamer-graph --bin graph").run()?;
    let peers = workspace.benchmarks("core")?;
    Step::cargo(&peers, "build --release --bin graph-petgraph").run()?;
    let reference = options.reference.as_ref().map(|program| program.canonicalize());
    let programs = Programs {
        gossamer: workspace.target().join("release/graph").canonicalize()?,
        petgraph: peers.join("target/release/graph-petgraph").canonicalize()?,
        reference: reference.transpose().context("--reference names no file")?,
    };
    let settings = options.settings();
    let mut report = Report::default();
    for round in 1..=options.rounds {
        for &setting in &settings {
            eprintln!("bench: round {round} of {}: {setting}", options.rounds);
            let run = measure(&programs, setting, options.roots);
            report.add(setting, run.with_context(|| setting.to_string())?);
        }
    }
    print!("{report}");
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report.rows())?;
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Runs the program of a setting.
fn measure(programs: &Programs, setting: Setting, roots: u32) -> Result<Run> {
    let [scale, roots, processes] =
        [setting.scale, roots, setting.processes].map(|n| n.to_string());
    let ours = || {
        let mut command = Command::new(&programs.gossamer);
        command.args(["graph500", "--skip-validation", "--threads", "1"]);
        command.args(["--scale", &scale, "--roots", &roots]);
        command
    };
    match setting.program {
        Program::Gossamer => {
            let mut command = ours();
            command.args(["--hosts", &processes]);
            observe(vec![command], &programs.gossamer)
        }
        Program::OverTcp => {
            // Tasks of a step of Slurm, as far as they know, each on a machine of its own.
            let job = std::process::id().to_string();
            let task = |rank: u32| {
                let mut command = ours();
                let is_slurm = |(name, _): &(String, String)| name.starts_with("SLURM");
                std::env::vars().filter(is_slurm).for_each(|(name, _)| {
                    command.env_remove(name);
                });
                command
                    .env("GOSSAMER_SECRET", "08".repeat(32))
                    .env("SLURM_JOB_ID", &job)
                    .env("SLURM_STEP_ID", "0")
                    .env("SLURM_STEP_NUM_TASKS", &processes)
                    .env("SLURM_STEP_NODELIST", "localhost")
                    .env("SLURMD_NODENAME", format!("machine{rank}"))
                    .env("SLURM_PROCID", rank.to_string());
                command
            };
            observe((0..setting.processes).map(task).collect(), &programs.gossamer)
        }
        Program::Reference => {
            let program = programs.reference.as_ref().context("no --reference")?;
            let mut command = Command::new("mpirun");
            // It checks its results like ours, with the same option switched off.
            command.env("SKIP_VALIDATION", "1");
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command.args(["--oversubscribe", "-n", &processes]).arg(program).args([&scale, "16"]);
            observe(vec![command], program)
        }
        Program::Petgraph => {
            let mut command = Command::new(&programs.petgraph);
            command.args([&scale, &roots]);
            observe(vec![command], &programs.petgraph)
        }
    }
}

/// Runs commands at the same time, whose processes of `program` are measured; the first prints the
/// results.
fn observe(commands: Vec<Command>, program: &Path) -> Result<Run> {
    let shown = format!("{:?}", commands.first().context("no command")?);
    let mut children = Children(Vec::new());
    for mut command in commands {
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        children.0.push(child.with_context(|| format!("cannot start {shown}"))?);
    }
    let mut memory = BTreeMap::new();
    for at in 0..children.0.len() {
        let status = loop {
            children.0.iter().for_each(|child| peaks(child.id(), program, &mut memory));
            if let Some(status) = children.0[at].try_wait()? {
                break status;
            }
            thread::sleep(Duration::from_millis(50));
        };
        ensure!(status.success(), "{shown} failed: {status}");
    }
    let mut output = String::new();
    // What it prints fits into the pipe.
    children.0[0].stdout.take().context("a pipe")?.read_to_string(&mut output)?;
    let block = read_block(&output).with_context(|| format!("what {shown} printed:\n{output}"))?;
    Ok(Run { bytes: memory.values().sum(), ..block })
}

/// Processes that end with this value.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It has ended already, unless another one failed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Notes the largest resident memory of a process and of those that it has started, if they run
/// `program`.
fn peaks(process: u32, program: &Path, memory: &mut BTreeMap<u32, u64>) {
    let folder = PathBuf::from(format!("/proc/{process}"));
    // Any of them may have ended meanwhile.
    let is_program = fs::read_link(folder.join("exe")).is_ok_and(|exe| exe == program);
    if is_program && let Ok(status) = fs::read_to_string(folder.join("status")) {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let most = memory.entry(process).or_default();
        *most = (*most).max(kibibytes.unwrap_or(0) << 10);
    }
    let children = folder.join(format!("task/{process}/children"));
    let children = fs::read_to_string(children).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
        peaks(child, program, memory);
    }
}

/// Reads an output block: ours or the reference's, which marks the means with an exclamation mark.
fn read_block(output: &str) -> Result<Run> {
    let value = |name: &str| -> Result<f64> {
        let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let text = line.with_context(|| format!("no line {name}"))?;
        let text = text.trim_start_matches([' ', '!']).trim();
        text.parse().with_context(|| format!("{name}: {text:?} is not a number"))
    };
    Ok(Run {
        bfs_mteps: value("bfs  harmonic_mean_TEPS")? / 1e6,
        sssp_mteps: value("sssp harmonic_mean_TEPS")? / 1e6,
        generation_s: value("graph_generation")?,
        construction_s: value("construction_time")?,
        bytes: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_both_programs_are_read() {
        let reference = "graph_generation:               0.7\n\
                         construction_time:              0.41\n\
                         bfs  min_TEPS:                  1e+07\n\
                         bfs  harmonic_mean_TEPS:     !  4.9e+07\n\
                         sssp harmonic_mean_TEPS:     !  1.4e+07\n";
        let run = read_block(reference).unwrap();
        assert_eq!((run.bfs_mteps, run.sssp_mteps, run.construction_s), (49.0, 14.0, 0.41));
        let ours = reference.replace('!', " ");
        assert_eq!(read_block(&ours).unwrap(), run);
        let error = read_block("No results printed for invalid run.\n").unwrap_err();
        assert!(error.to_string().contains("no line bfs  harmonic_mean_TEPS"), "{error}");
        assert!(read_block(&reference.replace("4.9e+07", "much")).is_err());
    }

    #[test]
    fn the_memory_of_a_process_is_seen() {
        let mut memory = BTreeMap::new();
        let exe = std::env::current_exe().unwrap().canonicalize().unwrap();
        peaks(std::process::id(), &exe, &mut memory);
        assert!(memory[&std::process::id()] > 1 << 20);
        peaks(std::process::id(), Path::new("/bin/other"), &mut memory);
        assert_eq!(memory.len(), 1);
    }

    #[test]
    fn every_scale_has_one_process_and_two_and_the_smallest_scales_up() {
        let options = Graph {
            reference: Some("program".into()),
            scale: vec![19, 18],
            rounds: 1,
            roots: 5,
            json: None,
        };
        let settings = options.settings();
        let of = |program| {
            let of_it = settings.iter().filter(move |setting| setting.program == program);
            of_it.map(|setting| (setting.scale, setting.processes)).collect::<Vec<_>>()
        };
        let all = [(18, 1), (18, 2), (19, 1), (19, 2), (20, 4)];
        assert_eq!((of(Program::Gossamer), of(Program::Reference)), (all.to_vec(), all.to_vec()));
        assert_eq!(of(Program::Petgraph), [(18, 1), (19, 1)]);
        assert_eq!(of(Program::OverTcp), [(19, 2), (20, 4)]);
    }
}

//! `cargo xtask bench graph`: the Graph500 benchmark of `crates/apps/graph`, beside the reference
//! implementation over MPI, which its user has built elsewhere: one process and two, in turns.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::step::Step;
use crate::workspace::Workspace;

/// The options.
#[derive(Args)]
pub(crate) struct Graph {
    /// The reference implementation's program graph500_reference_bfs_sssp (github.com/graph500/graph500,
    /// built with OpenMPI); without it, only ours is measured
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// The graph has 2^SCALE vertices, and 16 times as many edges
    #[arg(long, default_value_t = 18, value_parser = clap::value_parser!(u32).range(5..=26))]
    scale: u32,
    /// Number of interleaved rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Searches of ours in a round; the reference always makes 64
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(5..))]
    roots: u32,
    /// Numbers of processes, each with one thread
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    processes: Vec<u32>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    bfs_mteps: f64,
    sssp_mteps: f64,
    construction_s: f64,
    /// The largest resident memory of each process, added up.
    bytes: u64,
}

/// `cargo xtask bench graph`.
pub(crate) fn run(workspace: &Workspace, options: &Graph) -> Result<()> {
    Step::cargo(&workspace.root, "build --release --package gossamer-graph --bin graph").run()?;
    let ours = workspace.target().join("release/graph").canonicalize()?;
    let mut runs: BTreeMap<(u32, &str), Vec<Run>> = BTreeMap::new();
    for round in 0..options.rounds {
        for &processes in &options.processes {
            eprintln!("bench: round {} of {}, {processes} processes", round + 1, options.rounds);
            let run = gossamer(&ours, options, processes)?;
            runs.entry((processes, "gossamer")).or_default().push(run);
            if let Some(program) = &options.reference {
                let run = reference(program, options.scale, processes)?;
                runs.entry((processes, "reference")).or_default().push(run);
            }
        }
    }
    print!("{}", table(&runs, 16 << options.scale));
    Ok(())
}

fn gossamer(program: &Path, options: &Graph, processes: u32) -> Result<Run> {
    let mut command = Command::new(program);
    command.args(["graph500", "--skip-validation", "--threads", "1"]);
    for (name, value) in
        [("--scale", options.scale), ("--roots", options.roots), ("--hosts", processes)]
    {
        command.arg(name).arg(value.to_string());
    }
    measure(command, program)
}

fn reference(program: &Path, scale: u32, processes: u32) -> Result<Run> {
    let program = program.canonicalize();
    let program = program.context("the path of --reference is no file")?;
    let mut command = Command::new("mpirun");
    // It checks its results like ours, with the same option switched off.
    command.env("SKIP_VALIDATION", "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "-n", &processes.to_string()]);
    command.arg(&program).args([&scale.to_string(), "16"]);
    measure(command, &program)
}

/// Runs a command whose processes of `program` are measured.
fn measure(mut command: Command, program: &Path) -> Result<Run> {
    let shown = format!("{command:?}");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.with_context(|| format!("cannot start {shown}"))?;
    let mut memory = BTreeMap::new();
    let status = loop {
        peaks(child.id(), program, &mut memory);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let mut output = String::new();
    // What it prints fits into the pipe.
    child.stdout.take().context("a pipe")?.read_to_string(&mut output)?;
    ensure!(status.success(), "{shown} failed: {status}");
    let block = read_block(&output).with_context(|| format!("what {shown} printed:\n{output}"))?;
    Ok(Run { bytes: memory.values().sum(), ..block })
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
        construction_s: value("construction_time")?,
        bytes: 0,
    })
}

/// The medians of all rounds, with the extremes.
fn table(runs: &BTreeMap<(u32, &str), Vec<Run>>, edges: u64) -> String {
    let mut text = String::from(
        "| processes | program | BFS, MTEPS | SSSP, MTEPS | construction, s | bytes per edge |\n\
         |---|---|---|---|---|---|\n",
    );
    for ((processes, program), runs) in runs {
        let cell = |of: &dyn Fn(&Run) -> f64, digits: usize| {
            let mut values: Vec<f64> = runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            let (middle, last) = (values[values.len() / 2], values[values.len() - 1]);
            format!("{middle:.digits$} ({:.digits$}..{last:.digits$})", values[0])
        };
        let cells = [
            cell(&|run| run.bfs_mteps, 1),
            cell(&|run| run.sssp_mteps, 1),
            cell(&|run| run.construction_s, 2),
            cell(&|run| run.bytes as f64 / edges as f64, 0),
        ];
        text.push_str(&format!("| {processes} | {program} | {} |\n", cells.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_both_programs_are_read() {
        let reference = "construction_time:              0.41\n\
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
    fn a_table_has_medians_and_extremes() {
        let run =
            |mteps| Run { bfs_mteps: mteps, sssp_mteps: 1.0, construction_s: 1.0, bytes: 3200 };
        let runs = BTreeMap::from([((2, "gossamer"), vec![run(3.0), run(1.0), run(2.0)])]);
        let text = table(&runs, 100);
        assert!(text.contains("| 2 | gossamer | 2.0 (1.0..3.0) | 1.0 "), "{text}");
        assert!(text.ends_with("| 32 (32..32) |\n"), "{text}");
    }
}

//! The program as a user runs it, also as tasks of a step of Slurm.

use std::process::{Command, Stdio};

pub(crate) fn graph(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graph"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a line of the benchmark's output block.
pub(crate) fn value<'a>(block: &'a str, name: &str) -> &'a str {
    let line = block.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in\n{block}")).trim()
}

/// Runs two tasks of a step of Slurm, as far as they know, each on a machine of its own: over TCP and
/// TLS, or over RDMA with a device for each. Returns what the first has printed.
pub(crate) fn two_tasks(arguments: &[&str], step: &str, devices: Option<[&str; 2]>) -> String {
    let job = std::process::id().to_string();
    let start = |rank: usize| {
        let variables = std::env::vars().filter(|(name, _)| name.starts_with("SLURM"));
        let mut task = graph(arguments);
        for (name, _) in variables {
            task.env_remove(name);
        }
        task.env("GOSSAMER_SECRET", "08".repeat(32))
            .env("SLURM_JOB_ID", &job)
            .env("SLURM_STEP_ID", step)
            .env("SLURM_STEP_NUM_TASKS", "2")
            .env("SLURM_STEP_NODELIST", "localhost")
            .env("SLURMD_NODENAME", format!("machine{rank}"))
            .env("SLURM_PROCID", rank.to_string());
        if let Some(devices) = devices {
            task.env("GOSSAMER_RDMA_DEVICE", devices[rank]);
        }
        task.spawn().unwrap()
    };
    let tasks = [0, 1].map(start);
    let [first, other] = tasks.map(|task| task.wait_with_output().unwrap());
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(other.status.success() && other.stdout.is_empty(), "{}", text(&other.stderr));
    if devices.is_some() {
        let errors = text(&first.stderr);
        assert!(errors.contains("neither encrypted nor authenticated"), "not over RDMA: {errors}");
    }
    text(&first.stdout)
}

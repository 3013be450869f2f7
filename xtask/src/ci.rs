//! `cargo xtask ci`: all gates in order, timed, stopping at the first that fails. `.ci/run`
//! installs what they need and starts this. What later gates need is built beside the first ones.

use anyhow::{Context, Result};

use crate::ahead::Ahead;
use crate::step::Step;
use crate::times::Times;
use crate::workspace::Workspace;

/// The gates, fastest first: what each checks, and the arguments of cargo that run it.
const GATES: &[(&str, &str)] = &[
    ("formatting, clippy and commit subjects", "xtask lint"),
    ("order of crates and folders", "xtask layers"),
    ("unsafe code and its reasons", "xtask unsafe"),
    ("licences, bans and sources of dependencies; advisories if available", "xtask deny"),
    ("packages, compiled with the oldest supported compiler", "xtask package"),
    ("documentation", "xtask doc"),
    (
        "README's test command with compile-fail tests, memcached clients, a nightly compiler",
        "xtask test --clients --nightly",
    ),
    ("loom models", "xtask loom"),
    ("hot path, instruction by instruction", "xtask hotpath"),
    (FIRST_ALONE, "xtask fuzz --seconds 25"),
    ("README's main command", "xtask demo"),
    ("killed processes", "xtask chaos --rounds 10"),
    ("rack of namespaces: kills, a stop, an unplugged cable", "xtask netns test"),
    ("killed processes of racks of namespaces", "xtask chaos --net --rounds 5"),
    ("rack deployed over ssh", "xtask deploy-test"),
    ("RDMA devices, in virtual machines with two kernels", "xtask rdma-test"),
];

/// The first gate that has the processors for itself, as all that follow: how much it checks, or
/// what it may take, is a matter of time.
const FIRST_ALONE: &str = "fuzz targets, on a nightly compiler";

/// Runs the gates.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut times = Times::new();
    let mut ahead = Ahead::start(workspace)?;
    let mut built = String::new();
    for (number, (name, arguments)) in GATES.iter().enumerate() {
        if *name == FIRST_ALONE {
            built = times.of("rest of what was built ahead", || ahead.wait())?;
        }
        println!("\n==> gate {} of {}: {name}: cargo {arguments}", number + 1, GATES.len());
        let result = times.of(*name, || Step::cargo(&workspace.root, arguments).run());
        if let Err(error) = result {
            println!("\n{times}");
            return Err(error).with_context(|| format!("gate {} ({name})", number + 1));
        }
    }
    println!("\nbuilt ahead:\n{built}\ngates:\n{times}\nall {} gates passed", GATES.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Cli;
    use crate::checks::TEST_COMMAND;
    use crate::programs::MAIN_COMMAND;

    #[test]
    fn every_gate_is_a_command_that_exists() {
        for (name, arguments) in GATES {
            assert!(Cli::try_parse_from(arguments.split(' ')).is_ok(), "{name}: {arguments}");
        }
    }

    #[test]
    fn gates_that_take_time_come_after_what_is_built_ahead() {
        let first = GATES.iter().position(|(name, _)| *name == FIRST_ALONE).unwrap();
        for gate in ["fuzz", "demo", "chaos", "netns", "deploy-test", "rdma-test"] {
            let of = |(_, arguments): &(_, &str)| arguments.split(' ').nth(1) == Some(gate);
            assert!(GATES[first..].iter().any(of) && !GATES[..first].iter().any(of), "{gate}");
        }
    }

    #[test]
    fn readme_has_two_commands_and_ci_runs_both() {
        let readme = Workspace::find().unwrap().read("README.md").unwrap();
        for (command, gate) in [(MAIN_COMMAND, "xtask demo"), (TEST_COMMAND, "xtask test")] {
            assert!(readme.lines().any(|line| line == command), "README.md lacks `{command}`");
            assert!(GATES.iter().any(|(_, arguments)| arguments.starts_with(gate)), "{gate}");
        }
    }
}

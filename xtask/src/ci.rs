//! `cargo xtask ci`: all gates in order, timed, stopping at the first that fails. `.ci/run`
//! installs what they need and starts this.

use anyhow::{Context, Result};

use crate::step::Step;
use crate::times::Times;
use crate::workspace::Workspace;

/// The gates, fastest first: what each checks, and the arguments of cargo that run it.
const GATES: &[(&str, &str)] = &[
    ("formatting, clippy and commit subjects", "xtask lint"),
    ("order of crates and folders", "xtask layers"),
    ("unsafe code and its reasons", "xtask unsafe"),
    ("licences, bans and sources of dependencies; advisories if available", "xtask deny"),
    ("documentation", "xtask doc"),
    (
        "README's test command with compile-fail tests, memcached clients, a nightly compiler",
        "xtask test --clients --nightly",
    ),
    ("loom models", "xtask loom"),
    ("hot path, instruction by instruction", "xtask hotpath"),
    ("fuzz targets, on a nightly compiler", "xtask fuzz --seconds 40"),
    ("README's main command", "xtask demo"),
    ("killed processes", "xtask chaos --rounds 10"),
    ("rack of namespaces: kills, a stop, an unplugged cable", "xtask netns test"),
    ("killed processes of racks of namespaces", "xtask chaos --net --rounds 5"),
    ("rack deployed over ssh", "xtask deploy-test"),
    ("RDMA devices, in virtual machines with two kernels", "xtask rdma-test"),
];

/// Runs the gates.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut times = Times::new();
    for (number, (name, arguments)) in GATES.iter().enumerate() {
        println!("\n==> gate {} of {}: {name}: cargo {arguments}", number + 1, GATES.len());
        let result = times.of(*name, || Step::cargo(&workspace.root, arguments).run());
        if let Err(error) = result {
            println!("\n{times}");
            return Err(error).with_context(|| format!("gate {} ({name})", number + 1));
        }
    }
    println!("\n{times}\nall {} gates passed", GATES.len());
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
    fn readme_has_two_commands_and_ci_runs_both() {
        let readme = Workspace::find().unwrap().read("README.md").unwrap();
        for (command, gate) in [(MAIN_COMMAND, "xtask demo"), (TEST_COMMAND, "xtask test")] {
            assert!(readme.lines().any(|line| line == command), "README.md lacks `{command}`");
            assert!(GATES.iter().any(|(_, arguments)| arguments.starts_with(gate)), "{gate}");
        }
    }
}

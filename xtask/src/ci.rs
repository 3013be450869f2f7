//! `cargo xtask ci`: all gates in order, timed, stopping at the first that fails. `.ci/run`
//! installs what they need and starts this. What later gates need is built beside the first ones. The
//! gate of guests, which are emulated on little more than one processor, runs beside gates that take
//! less than one, and beside the rest of those builds, which take what is left.

use anyhow::{Context, Result, ensure};

use crate::ahead;
use crate::background::Background;
use crate::step::Step;
use crate::times::Times;
use crate::workspace::Workspace;

/// The gates, fastest first: what each checks, and the arguments of cargo that run it.
const GATES: &[(&str, &str)] = &[
    ("formatting, clippy and commit subjects", "xtask lint --rdma"),
    ("order of crates and folders", "xtask layers"),
    ("unsafe code and its reasons", "xtask unsafe"),
    ("licences, bans and sources of dependencies; advisories if available", "xtask deny"),
    ("packages, compiled with the oldest supported compiler", "xtask package"),
    ("documentation", "xtask doc --rdma"),
    (
        "README's test command with compile-fail tests, memcached clients, a nightly compiler",
        "xtask test --clients --nightly",
    ),
    (FIRST_BESIDE, "xtask loom"),
    ("hot path, instruction by instruction", "xtask hotpath"),
    IN_GUESTS,
    (FIRST_ALONE, "xtask fuzz --seconds 25"),
    ("README's main command", "xtask demo"),
    ("killed processes", "xtask chaos --rounds 10"),
    ("rack of namespaces: kills, a stop, an unplugged cable", "xtask netns test"),
    ("killed processes of racks of namespaces", "xtask chaos --net --rounds 5"),
    ("rack deployed over ssh", "xtask deploy-test"),
];

/// The first gate that does not share the processors with guests and with what is built ahead, as all
/// that follow: how much it checks, or what it may take, is a matter of time.
const FIRST_ALONE: &str = "fuzz targets, on a nightly compiler";
/// The first gate beside [`IN_GUESTS`]: the tests before it have deadlines, which they might miss beside
/// guests, and run programs of the folder in which the tests over RDMA are built with other features.
/// Models do neither; counts of instructions have no deadline, and their programs are those of `bench-kit`,
/// which the tests over RDMA do not build.
const FIRST_BESIDE: &str = "loom models";
/// The gate that starts before its turn.
const IN_GUESTS: (&str, &str) =
    ("RDMA devices, in virtual machines with two kernels", "xtask rdma-test");

/// Runs the gates.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut times = Times::new();
    let mut builds = Background::start_nice(workspace, "ahead")?;
    let mut built = String::new();
    let mut in_guests = None;
    for (number, gate) in GATES.iter().enumerate() {
        let (name, arguments) = *gate;
        if name == FIRST_ALONE {
            (_, built) = times.of("rest of what was built ahead", || builds.wait())?;
        }
        if name == FIRST_BESIDE {
            in_guests = Some(Background::start(workspace, command(&IN_GUESTS))?);
        }
        println!("\n==> gate {} of {}: {name}: cargo {arguments}", number + 1, GATES.len());
        let result = times.of(name, || match &mut in_guests {
            Some(running) if *gate == IN_GUESTS => finish(running),
            _ => Step::xtask(&workspace.root, command(gate)).run(),
        });
        if let Err(error) = result {
            println!("\n{times}");
            return Err(error).with_context(|| format!("gate {} ({name})", number + 1));
        }
    }
    let built = ahead::summary(&built);
    println!("\nbuilt ahead:\n{built}\ngates:\n{times}\nall {} gates passed", GATES.len());
    Ok(())
}

/// The command of xtask that is a gate.
fn command((_, arguments): &(&'static str, &'static str)) -> &'static str {
    arguments.strip_prefix("xtask ").expect("a gate is a command of xtask")
}

/// Waits for a gate that runs beside others, and prints what it has printed.
fn finish(running: &mut Background) -> Result<()> {
    let (status, printed) = running.wait()?;
    print!("{printed}");
    ensure!(status.success(), "it ended with {status}");
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
        for gate in ["fuzz", "demo", "chaos", "netns", "deploy-test"] {
            let of = |(_, arguments): &(_, &str)| arguments.split(' ').nth(1) == Some(gate);
            assert!(GATES[first..].iter().any(of) && !GATES[..first].iter().any(of), "{gate}");
        }
    }

    #[test]
    fn guests_run_beside_gates_that_have_no_deadlines() {
        let place = |gate| GATES.iter().position(|(name, _)| *name == gate).unwrap();
        let tests = GATES.iter().position(|gate| command(gate).starts_with("test ")).unwrap();
        assert!(tests < place(FIRST_BESIDE));
        assert!(place(FIRST_BESIDE) < place(IN_GUESTS.0));
        assert!(place(IN_GUESTS.0) < place(FIRST_ALONE));
        assert!(GATES.iter().all(|gate| !command(gate).is_empty()));
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

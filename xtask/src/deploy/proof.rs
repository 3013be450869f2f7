//! `cargo xtask deploy-test`: a rack is deployed on namespaces of this machine, a bench runs on it,
//! is ended by signals, a second deployment finds everything there, a daemon that was killed is started again; and hosts
//! that will not do are refused.

use crate::deploy::interrupt::Interrupt;
use crate::deploy::rack_file::RackFile;
use crate::deploy::site::{Found, Mode, Site};
use crate::deploy::{build, local};
use crate::netns::proof::{eventually, working};
use crate::netns::world::World;
use crate::programs::check_bench;
use crate::step::Step;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the command may take for a small bench.
const PATIENCE: Duration = Duration::from_secs(240);
const BENCH: &str =
    "rack-deploy --local 3 --bin kv -- bench --workload c --records 2000 --operations 20000";
/// A bench that goes on until it is ended.
const ENDLESS: &str = "rack-deploy --local 2 --bin kv -- bench --records 300 --operations \
                       1000000000000 --seconds 600";

/// Runs the proofs.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let itself = env::current_exe()?;
    let printed = Step::program(&workspace.root, itself, BENCH).within(PATIENCE).read()?;
    // All of it is host 0's, which alone reports.
    let lines: Option<Vec<_>> = printed.lines().map(|line| line.strip_prefix("[a] ")).collect();
    let lines = lines.context("others than the first host have something to say")?;
    let rate = check_bench(&lines.join("\n"), 3)?;
    println!("deploy: a bench ran on three hosts, {rate} operations per second");
    for (name, status) in [("INT", 130), ("TERM", 143)] {
        interrupted(workspace, name, status)
            .with_context(|| format!("interrupted by SIG{name}"))?;
    }

    build(workspace, "kv", Mode::Do)?;
    let interrupt = Interrupt::new()?;
    local::with(workspace, 2, Mode::Do, &interrupt, |site| {
        again(site)?;
        failures(site)
    })?;
    println!("deploy: what is there was found, what was lost was made again, the rest refused");
    Ok(())
}

/// A deployment whose job is ended by a signal, from the terminal or not: nothing is left.
fn interrupted(workspace: &Workspace, name: &str, status: i32) -> Result<()> {
    let world = World::new(workspace, local::PREFIX);
    let mut command = Command::new(env::current_exe()?);
    let mut child =
        command.args(ENDLESS.split(' ')).stdin(Stdio::null()).process_group(0).spawn()?;
    let ready = eventually("the job works", || {
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "it has not even begun");
        let is_there = world.hosts()?.iter().any(|host| host == "b");
        // Namespaces appear and disappear in between.
        Ok(if is_there { working(&world, 1, "b").unwrap_or_default() } else { None })
    });
    // A terminal tells all of the group, which `kill` writes with a minus.
    let whom = if name == "INT" { format!("-{}", child.id()) } else { child.id().to_string() };
    Step::program(&workspace.root, "kill", &format!("-s {name} -- {whom}")).run()?;
    let ended = child.wait()?;
    ready?;
    ensure!(ended.code() == Some(status), "the command has ended with {ended}");
    let left = world.hosts()?;
    ensure!(left.is_empty(), "these hosts are left: {left:?}");
    println!("deploy: ended by SIG{name}, and nothing was left");
    Ok(())
}

/// Deployments of what is there, in whole or in part.
fn again(site: &Site<'_>) -> Result<()> {
    use Found::{Behind, Ready};
    let found = site.deploy()?;
    ensure!(found == [Behind, Behind], "an empty host is not ready: {found:?}");
    let found = site.deploy().context("a second time")?;
    ensure!(found == [Ready, Ready], "everything was there: {found:?}");
    let hosts = site.hosts();
    let daemon = format!("cat {}/gossamerd.pid", hosts[1].folder);
    let before = site.on(&hosts[1], &daemon)?;
    site.on(&hosts[1], &format!("kill -KILL {before}"))?;
    let found = site.deploy().context("with a daemon that was killed")?;
    ensure!(found == [Ready, Behind], "a daemon was killed: {found:?}");
    ensure!(site.on(&hosts[1], &daemon)? != before, "there is no new daemon");
    // Not written to where it is, which the system refuses while it runs.
    let change = "cp gossamerd other && echo >>other && mv other gossamerd";
    site.on(&hosts[0], &format!("cd {}/bin && {change}", hosts[0].folder))?;
    let found = site.deploy().context("with another gossamerd in place");
    ensure!(found? == [Behind, Ready], "a program was not the one that is to be there");
    let found = site.deploy().context("at last")?;
    ensure!(found == [Ready, Ready], "everything was there again: {found:?}");
    Ok(())
}

/// Hosts that will not do, and what is said of them.
fn failures(site: &Site<'_>) -> Result<()> {
    let good = &site.hosts()[0];
    let small = format!("{}.small", good.folder);
    // Seen by this host alone: what `ip netns exec` runs has mounts of its own.
    site.on(good, &format!("mkdir {small} && mount -t tmpfs -o size=1m none {small}"))?;
    let host = |name: &str, ssh: &str, folder: &str| {
        let address = good.address;
        format!(
            "[[hosts]]\nname = \"{name}\"\nssh = \"{ssh}\"\naddress = \"{address}\"\n\
             port = 7500\nfolder = \"{folder}\"\nsystemd = false\n"
        )
    };
    for (host, reason) in [
        (host("d", &good.ssh, &small), "d: it has 1 MiB free on the disk of its folder"),
        (host("e", "nobody-here.invalid", "gossamer"), "e: ssh: Could not resolve hostname"),
    ] {
        let rack = RackFile::parse(&format!("name = \"local\"\n{host}"))?;
        let Err(error) = site.of(&rack).deploy() else { bail!("it was deployed on {host}") };
        let said = format!("{error:#}");
        ensure!(said.contains("nothing was deployed") && said.contains(reason), "{said}");
        println!("deploy: refused: {said}");
    }
    Ok(())
}

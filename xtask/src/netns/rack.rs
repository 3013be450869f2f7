//! [`Rack`]: network namespaces with the identities of a rack and a daemon in each.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gossamer_deploy::namespaces::{Namespaces, address, letters};

use crate::workspace::Workspace;

/// The time that a daemon has to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A rack of namespaces whose names begin with a prefix.
pub(crate) struct Rack {
    pub(crate) namespaces: Namespaces,
    programs: PathBuf,
}

impl Rack {
    /// The rack of this prefix, whether or not it exists.
    pub(crate) fn new(workspace: &Workspace, prefix: &'static str) -> Self {
        let folder = workspace.target().join("netns").join(prefix);
        let namespaces = Namespaces::new(prefix, &folder);
        Self { namespaces, programs: workspace.target().join("release") }
    }

    /// A file in the folder of this rack.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.namespaces.file(name)
    }

    /// A program that this workspace has built.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Makes the namespaces and the rack, and starts a daemon in each.
    pub(crate) fn up(&self, hosts: u32) -> Result<()> {
        let names = letters(hosts);
        self.namespaces.make(&names)?;
        self.make_rack(&names)?;
        (1..).zip(&names).try_for_each(|(number, name)| self.start_daemon(number, name))
    }

    /// Makes the identities of the hosts and of the administrator, as docs/rack.md says.
    fn make_rack(&self, names: &[String]) -> Result<()> {
        let (rack, first) = (self.file("rack"), address(1));
        let init = ["rack", "init", "--name", "netns", "--host", &names[0], "--address", &first];
        self.output(self.gossamer(&init).arg("--dir").arg(&rack))?;
        for (number, name) in (1..).zip(names).skip(1) {
            self.join(name, &["--role", "host", "--address", &address(number)])?;
        }
        // Last, since a card lists the hosts that there are when it is signed.
        self.join("operator", &["--role", "admin"])
    }

    fn join(&self, name: &str, role: &[&str]) -> Result<()> {
        let rack = self.file("rack");
        let (request, card) = (self.file("request"), self.file("card"));
        let join = || {
            let mut join = self.gossamer(&["rack", "join", "--identity"]);
            join.arg(rack.join(name));
            join
        };
        fs::write(&request, self.output(&mut join())?)?;
        let mut sign = self.gossamer(&["rack", "sign", "--name", name]);
        fs::write(&card, self.output(sign.args(role).arg("--dir").arg(&rack).arg(&request))?)?;
        self.output(join().arg("--card").arg(&card)).map(drop)
    }

    fn start_daemon(&self, number: u32, name: &str) -> Result<()> {
        let (settings, state) = (self.file(&format!("{name}.toml")), self.file(name));
        let address = address(number);
        fs::write(
            &settings,
            format!(
                "identity = \"rack/{name}\"\nstate = \"{name}\"\nlisten = \"{address}:7474\"\n\
                 data_address = \"{address}\"\n"
            ),
        )?;
        let log = self.file(&format!("{name}.log"));
        let mut command = inside(self.namespaces.at(name), &self.program("gossamerd"));
        // Only root makes namespaces.
        command
            .args(["--allow-root", "--config"])
            .arg(&settings)
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        // The daemon outlives the command that starts it, also after Ctrl-C.
        let mut daemon = command.process_group(0).spawn().context("cannot start a daemon")?;
        let deadline = Instant::now() + START_TIMEOUT;
        while !state.join("address").exists() {
            let is_there = daemon.try_wait()?.is_none() && Instant::now() < deadline;
            ensure!(is_there, "the daemon of {name} does not listen: see {}", log.display());
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The `gossamer` command at the switch, as the administrator.
    pub(crate) fn gossamer(&self, arguments: &[&str]) -> Command {
        let mut command = inside(self.namespaces.at_switch(), &self.program("gossamer"));
        command.env("GOSSAMER_IDENTITY", self.file("rack/operator")).args(arguments);
        command
    }

    fn output(&self, command: &mut Command) -> Result<Vec<u8>> {
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {errors}");
        Ok(output.stdout)
    }
}

/// A command that runs `program` after the words `prefix`.
fn inside(prefix: Vec<String>, program: &Path) -> Command {
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).arg(program).stdin(Stdio::null());
    command
}

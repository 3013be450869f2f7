//! [`Deployment`]: a rack, the machine that it is deployed from, and the steps. What is done on one
//! host is in `install`.

mod install;

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};

use crate::action::{Action, path};
use crate::interrupt::Interrupt;
use crate::mode::{Mode, print};
use crate::probe::{Facts, Requirements, glibc_of, probe};
use crate::rack_file::{Host, RackFile};

/// Free space on disk beside the programs that are sent, in KiB: for logs, the programs of jobs, and
/// what these write.
const SPARE_KIB: u64 = 64 << 10;
/// The most hosts that are deployed to at the same time.
const PARALLEL_HOSTS: usize = 16;
/// What is sent to every host; the program of the job is sent to the daemons by `gossamer run`.
const PROGRAMS: [&str; 2] = ["gossamer", "gossamerd"];

/// The `gossamer` and `gossamerd` to install.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Those in `folder`, which must exist.
    ///
    /// # Errors
    /// If one is missing.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        for name in PROGRAMS {
            ensure!(
                folder.join(name).is_file(),
                "no {name} in {}: put gossamer and gossamerd into one directory, and name it with \
                 --programs",
                folder.display()
            );
        }
        Ok(Self::to_be_built(folder))
    }

    /// Those in `folder` once they are built.
    pub fn to_be_built(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A rack and the machine that it is deployed from.
#[derive(Debug)]
pub struct Deployment<'a> {
    programs: &'a Programs,
    rack: &'a RackFile,
    /// The directory of the rack's authority, and of the files for its hosts.
    state: PathBuf,
    mode: Mode,
    interrupt: &'a Interrupt,
    /// The words in front of commands that use the network.
    network_prefix: Vec<String>,
    /// Settings of ssh, if not the user's.
    ssh_settings: Option<PathBuf>,
    /// Held while the authority signs: it keeps a list of hosts.
    signing: Mutex<()>,
}

/// What a deployment did on a host.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: all files were there, and the daemon ran.
    Unchanged,
    /// At least one file was sent, or the daemon was started.
    Updated,
}

impl<'a> Deployment<'a> {
    /// A deployment of `rack` from this machine, as its user.
    pub fn new(
        programs: &'a Programs,
        rack: &'a RackFile,
        state: PathBuf,
        mode: Mode,
        interrupt: &'a Interrupt,
    ) -> Self {
        let (network_prefix, ssh_settings, signing) = (Vec::new(), None, Mutex::default());
        Self { programs, rack, state, mode, interrupt, network_prefix, ssh_settings, signing }
    }

    /// Puts `prefix` in front of commands that use the network, and uses other settings of ssh.
    pub(crate) fn through(mut self, prefix: Vec<String>, ssh_settings: PathBuf) -> Self {
        (self.network_prefix, self.ssh_settings) = (prefix, Some(ssh_settings));
        self
    }

    /// A deployment of another rack with the same programs, state and network.
    pub fn with_rack<'b>(&'b self, rack: &'b RackFile) -> Deployment<'b> {
        Deployment {
            programs: self.programs,
            rack,
            state: self.state.clone(),
            mode: self.mode,
            interrupt: self.interrupt,
            network_prefix: self.network_prefix.clone(),
            ssh_settings: self.ssh_settings.clone(),
            signing: Mutex::default(),
        }
    }

    /// The hosts of the rack.
    pub fn hosts(&self) -> &[Host] {
        &self.rack.hosts
    }

    /// Prepares every host for jobs; returns what was done on each.
    ///
    /// # Errors
    /// If a host cannot be reached or fails a requirement (then nothing is changed on any), or a
    /// step fails on one.
    pub fn deploy(&self) -> Result<Vec<Outcome>> {
        self.make_rack()?;
        let facts = self.probe()?;
        self.on_all("the rack is not ready", |number, host| self.install(host, &facts[number]))
    }

    /// Calls `work` for every host, for several at the same time (for one after the other in a dry
    /// run); returns the results in the order of the hosts. If it fails for any, the error lists all
    /// failures under `failure`.
    fn on_all<T: Send>(
        &self,
        failure: &str,
        work: impl Fn(usize, &Host) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let hosts = &self.rack.hosts;
        let parallel = if self.mode == Mode::DryRun { 1 } else { PARALLEL_HOSTS.min(hosts.len()) };
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..parallel {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(host) = hosts.get(number) else { return };
                        let outcome = work(number, host);
                        outcomes
                            .lock()
                            .expect("no thread panics with this lock")
                            .push((number, outcome));
                    }
                });
            }
        });
        // After a signal, the failures of the others only repeat it.
        self.interrupt.check()?;
        let mut outcomes = outcomes.into_inner().expect("no thread panics with this lock");
        outcomes.sort_by_key(|(number, _)| *number);
        let (mut done, mut problems) = (Vec::new(), Vec::new());
        for (number, outcome) in outcomes {
            match outcome {
                Ok(outcome) => done.push(outcome),
                Err(error) => problems.push(format!("{}: {error:#}", hosts[number].name)),
            }
        }
        ensure!(problems.is_empty(), "{failure}:\n  {}", problems.join("\n  "));
        Ok(done)
    }

    /// Makes the authority of the rack, unless it exists.
    fn make_rack(&self) -> Result<()> {
        if self.state.join("ca").exists() {
            self.mode.status(&format!("the rack {} exists", self.rack.name));
            return Ok(());
        }
        self.mode.step(&format!("making the rack {} in {}", self.rack.name, self.state.display()));
        let words = ["rack", "init", "--name", &self.rack.name, "--dir", &path(&self.state)];
        self.act(Action::new([path(&self.programs.path("gossamer"))]).args(words)).map(drop)
    }

    /// Probes every host; an error if one fails a requirement.
    fn probe(&self) -> Result<Vec<Facts>> {
        self.on_all("nothing was deployed", |_, host| {
            let name = &host.name;
            self.mode.step(&format!("probing {name} ({})", host.ssh));
            let facts = Facts::read(&self.on(host, &probe(&self.rack.name, host))?);
            if self.mode == Mode::Run {
                self.mode.status(&format!("{name}: {}", facts.summary()));
                let unmet = facts.unmet(&self.required(host, &facts)?);
                ensure!(unmet.is_empty(), "{}", unmet.join("; "));
            }
            Ok(facts)
        })
    }

    /// What the programs require of a host that reported these facts.
    fn required(&self, host: &Host, facts: &Facts) -> Result<Requirements> {
        let allow_root = host.allow_root;
        let mut required =
            Requirements { arch: ARCH.into(), glibc: (0, 0), disk_kib: SPARE_KIB, allow_root };
        for name in PROGRAMS {
            let file = self.programs.path(name);
            let program = fs::read(&file).with_context(|| path(&file))?;
            let glibc = glibc_of(&program)
                .with_context(|| format!("{} uses no glibc, expected it to", path(&file)))?;
            required.glibc = required.glibc.max(glibc);
            if self.digest(&file)? != facts.get(&format!("bin/{name}")) {
                required.disk_kib += program.len() as u64 >> 10;
            }
        }
        Ok(required)
    }

    /// Runs a program as a job on all hosts; returns its exit status.
    ///
    /// # Errors
    /// If `gossamer run` cannot be started, or after a signal.
    pub fn run(&self, program: &Path, threads: u32, arguments: &[String]) -> Result<u8> {
        let (hosts, threads) = (self.rack.names(), threads.to_string());
        let gossamer = path(&self.programs.path("gossamer"));
        let run = Action::new(self.network_prefix.iter().chain([&gossamer]))
            .env("GOSSAMER_IDENTITY", &self.state.join("admin"))
            .args(["run", "--hosts", &hosts, "--threads", &threads, "--"])
            .args([path(program)])
            .args(arguments);
        self.mode.step(&format!("running {} on {hosts}", path(program)));
        if self.mode == Mode::DryRun {
            print(&run.shown());
            return Ok(0);
        }
        self.interrupt.check()?;
        let child = run.command().stdin(Stdio::inherit()).spawn();
        self.interrupt.wait(child.context("cannot run gossamer")?)
    }

    /// Runs a script on a host; returns its output.
    ///
    /// # Errors
    /// If ssh cannot log in, or the script fails.
    pub fn on(&self, host: &Host, script: &str) -> Result<String> {
        self.act(self.ssh(host, script))
    }

    fn on_with(&self, host: &Host, script: &str, input: &Path) -> Result<String> {
        self.act(self.ssh(host, script).input(input))
    }

    fn ssh(&self, host: &Host, script: &str) -> Action {
        let settings = self.ssh_settings.iter().flat_map(|file| ["-F".to_owned(), path(file)]);
        // A deployment is not interactive: no question for a password, and no user who notices that a
        // host no longer answers.
        let options = [
            "BatchMode=yes",
            "ConnectTimeout=10",
            "ServerAliveInterval=10",
            "ServerAliveCountMax=3",
        ];
        Action::new(self.network_prefix.clone())
            .args(["ssh"])
            .args(options.iter().flat_map(|option| ["-o", option]))
            .args(settings)
            .args([host.ssh.as_str(), script])
    }

    fn act(&self, action: Action) -> Result<String> {
        self.mode.act(&action, self.interrupt)
    }

    fn file(&self, host: &str, ending: &str) -> PathBuf {
        self.state.join("hosts").join(format!("{host}.{ending}"))
    }

    /// The SHA-256 digest of a file; in a dry run, a placeholder.
    fn digest(&self, file: &Path) -> Result<String> {
        if self.mode == Mode::DryRun || !file.exists() {
            return Ok("DIGEST".into());
        }
        let printed = Action::new(["sha256sum", &path(file)]).run(self.interrupt)?;
        Ok(printed.split_whitespace().next().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Calls `work` with a deployment to three hosts.
    fn with_three<T>(work: impl FnOnce(&Deployment<'_>) -> T) -> T {
        let host = |number: u32, name: &str| {
            let address = format!("10.0.0.{number}");
            format!("[[hosts]]\nname = \"{name}\"\nssh = \"{name}\"\naddress = \"{address}\"\n")
        };
        let text = format!("name = \"r\"\n{}{}{}", host(1, "a"), host(2, "b"), host(3, "c"));
        let (rack, interrupt) = (RackFile::parse(&text).unwrap(), Interrupt::never());
        let (state, programs) = (std::env::temp_dir(), Programs::to_be_built(Path::new("/")));
        work(&Deployment::new(&programs, &rack, state, Mode::Run, &interrupt))
    }

    fn on_three<T: Send>(work: impl Fn(usize, &Host) -> Result<T> + Sync) -> Result<Vec<T>> {
        with_three(|deployment| deployment.on_all("not ready", work))
    }

    #[test]
    fn ssh_waits_neither_for_an_answer_nor_for_a_host_that_has_gone() {
        let shown = with_three(|deployment| deployment.ssh(&deployment.hosts()[1], "true").shown());
        let expected = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 \
                        -o ServerAliveCountMax=3 b true";
        assert_eq!(shown, expected);
    }

    #[test]
    fn hosts_are_worked_on_in_parallel_and_reported_in_their_order() {
        let all = Barrier::new(3);
        let done = on_three(|number, host| {
            all.wait();
            Ok((number, host.name.clone()))
        });
        let expected = [(0, "a".to_owned()), (1, "b".to_owned()), (2, "c".to_owned())];
        assert_eq!(done.unwrap(), expected);
    }

    #[test]
    fn all_failures_are_reported() {
        let failed = on_three(|number, _| {
            ensure!(number == 1, "no room");
            Ok(())
        });
        let error = failed.unwrap_err().to_string();
        assert_eq!(error, "not ready:\n  a: no room\n  c: no room");
    }
}

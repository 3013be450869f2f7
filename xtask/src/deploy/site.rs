//! [`Site`]: a rack, the machine that it is deployed from, and the steps of a deployment.

use crate::deploy::action::{Action, path};
use crate::deploy::host::{self, Facts, Needs};
use crate::deploy::interrupt::Interrupt;
use crate::deploy::rack_file::{Host, RackFile};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// After how long a host gets a new certificate; they are good for a year.
const RENEW_AFTER: Duration = Duration::from_secs(180 * 24 * 60 * 60);
/// Room on disk beside what is sent, in KiB: logs, the programs of jobs, and what these write.
const SPARE_KIB: u64 = 64 << 10;
/// Hosts that are seen to at a time.
const AT_ONCE: usize = 16;
/// What is sent to every host, beside the program of the job, which its daemon is sent.
const PROGRAMS: [&str; 2] = ["gossamer", "gossamerd"];

/// Whether commands are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are.
    Do,
    /// They are only shown, and no file is written.
    Show,
}

/// A rack and where it is deployed from.
pub(crate) struct Site<'a> {
    rack: &'a RackFile,
    /// The folder of the rack's authority, and of what was made for its hosts.
    state: PathBuf,
    /// Where cargo puts programs.
    programs: PathBuf,
    mode: Mode,
    interrupt: &'a Interrupt,
    /// What stands in front of commands that use the network.
    inside: Vec<String>,
    /// Settings of ssh, if not the user's.
    ssh_settings: Option<PathBuf>,
    /// Held while the authority signs: it keeps a list of hosts.
    signing: Mutex<()>,
}

/// What a deployment found on a host, and whether it had to do something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Everything, and the daemon runs.
    Ready,
    /// Less than that.
    Behind,
}

/// The administrator's list of daemons, as `gossamer` keeps it.
#[derive(Default, Deserialize)]
struct Known {
    #[serde(default)]
    hosts: BTreeMap<String, String>,
}

impl<'a> Site<'a> {
    /// A rack that is deployed from this machine, as its user.
    pub(crate) fn new(
        workspace: &Workspace,
        rack: &'a RackFile,
        state: PathBuf,
        mode: Mode,
        interrupt: &'a Interrupt,
    ) -> Self {
        let programs = workspace.target().join("release");
        let (inside, ssh_settings, signing) = (Vec::new(), None, Mutex::default());
        Self { rack, state, programs, mode, interrupt, inside, ssh_settings, signing }
    }

    /// Uses the network by way of a command, and ssh with its own settings.
    pub(crate) fn by_way_of(mut self, inside: Vec<String>, ssh_settings: PathBuf) -> Self {
        (self.inside, self.ssh_settings) = (inside, Some(ssh_settings));
        self
    }

    /// Other hosts, deployed from the same place.
    pub(crate) fn of<'b>(&'b self, rack: &'b RackFile) -> Site<'b> {
        Site {
            rack,
            state: self.state.clone(),
            programs: self.programs.clone(),
            mode: self.mode,
            interrupt: self.interrupt,
            inside: self.inside.clone(),
            ssh_settings: self.ssh_settings.clone(),
            signing: Mutex::default(),
        }
    }

    /// The hosts of the rack.
    pub(crate) fn hosts(&self) -> &[Host] {
        &self.rack.hosts
    }

    /// Gets every host ready to run jobs; what was found on each.
    pub(crate) fn deploy(&self) -> Result<Vec<Found>> {
        self.make_rack()?;
        let facts = self.look()?;
        self.on_all("the rack is not ready", |number, host| self.prepare(host, &facts[number]))
    }

    /// Does something for every host, for several at a time (where commands are only shown, for one
    /// after the other); what came of it, in the order of the hosts. If it fails for any, the error
    /// is what went wrong for each.
    fn on_all<T: Send>(
        &self,
        failure: &str,
        what: impl Fn(usize, &Host) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let hosts = &self.rack.hosts;
        let at_once = if self.mode == Mode::Show { 1 } else { AT_ONCE.min(hosts.len()) };
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(host) = hosts.get(number) else { return };
                        let outcome = what(number, host);
                        outcomes.lock().expect("nobody panics with it").push((number, outcome));
                    }
                });
            }
        });
        // What an interruption has made of the others is of no interest.
        self.interrupt.check()?;
        let mut outcomes = outcomes.into_inner().expect("nobody panics with it");
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

    /// Makes the authority of the rack, unless it is there.
    fn make_rack(&self) -> Result<()> {
        if self.state.join("ca").exists() {
            self.say(format!("the rack {} is there", self.rack.name));
            return Ok(());
        }
        self.note(format!("making the rack {} in {}", self.rack.name, self.state.display()));
        let words = ["rack", "init", "--name", &self.rack.name, "--dir", &path(&self.state)];
        self.act(Action::new([path(&self.program("gossamer"))]).args(words)).map(drop)
    }

    /// Looks at every host; an error if one of them will not do.
    fn look(&self) -> Result<Vec<Facts>> {
        self.on_all("nothing was deployed", |_, host| {
            let name = &host.name;
            self.note(format!("looking at {name} ({})", host.ssh));
            let found = Facts::read(&self.on(host, &host::look(&self.rack.name, host))?);
            if self.mode == Mode::Do {
                self.say(format!("{name}: {}", found.summary()));
                let lacks = found.problems(&self.needs(host, &found)?);
                ensure!(lacks.is_empty(), "{}", lacks.join("; "));
            }
            Ok(found)
        })
    }

    /// What the programs ask of a host that has told these facts.
    fn needs(&self, host: &Host, facts: &Facts) -> Result<Needs> {
        let allow_root = host.allow_root;
        let mut needs = Needs { arch: ARCH.into(), glibc: (0, 0), disk_kib: SPARE_KIB, allow_root };
        for name in PROGRAMS {
            let file = self.program(name);
            let program = fs::read(&file).with_context(|| path(&file))?;
            let glibc = host::glibc_of(&program).context("which glibc does it need?")?;
            needs.glibc = needs.glibc.max(glibc);
            if self.digest(&file)? != facts.get(&format!("bin/{name}")) {
                needs.disk_kib += program.len() as u64 >> 10;
            }
        }
        Ok(needs)
    }

    /// Installs what is missing on a host, and has its daemon run.
    fn prepare(&self, host: &Host, facts: &Facts) -> Result<Found> {
        let mut found = Found::Ready;
        let mut done = |what: String| {
            found = Found::Behind;
            self.note(what);
        };
        let name = &host.name;
        for program in PROGRAMS {
            let (file, place) = (self.program(program), format!("bin/{program}"));
            if self.digest(&file)? != facts.get(&place) {
                done(format!("{name}: sending {program}"));
                self.on_with(host, &host::put(host, &place, "755"), &file)?;
            }
        }
        self.act(Action::new(["mkdir", "-p", &path(&self.state.join("hosts"))]))?;
        let (card, is_old) = (self.file(name, "card"), self.is_old(host)?);
        if is_old || self.digest(&card)? != facts.get("identity/card") {
            done(format!("{name}: joining the rack"));
            self.join(host)?;
        }
        let revoked = self.state.join("ca/revoked.pem");
        if revoked.exists() && self.digest(&revoked)? != facts.get("identity/revoked.pem") {
            done(format!("{name}: sending the list of revoked certificates"));
            self.on_with(host, &host::put(host, "identity/revoked.pem", "644"), &revoked)?;
        }
        for (ending, place, text) in [
            ("toml", "gossamer.toml", host::settings(host)),
            ("service", "gossamerd.service", host::unit(&self.rack.name, host)),
        ] {
            let file = self.file(name, ending);
            self.write(&file, &text)?;
            if self.digest(&file)? != facts.get(place) {
                done(format!("{name}: writing {place}"));
                self.on_with(host, &host::put(host, place, "600"), &file)?;
            }
        }
        let stamp = self.stamp(name)?;
        if stamp != facts.get("started") {
            done(format!("{name}: starting the daemon"));
            self.on(host, &host::start(&self.rack.name, host, &stamp))?;
        }
        if found == Found::Ready {
            self.say(format!("{name}: everything is there, and the daemon runs"));
        }
        Ok(found)
    }

    /// Signs the key that the host makes, or has.
    fn join(&self, host: &Host) -> Result<()> {
        let (request, card) = (self.file(&host.name, "request"), self.file(&host.name, "card"));
        let ask = self.ssh(host, &host::ask_to_join(host)).output(&request);
        self.act(ask)?;
        let signing = self.signing.lock().expect("nobody panics with it");
        let address = host.listens_at().to_string();
        let sign = Action::new([path(&self.program("gossamer"))])
            .args(["rack", "sign", "--dir", &path(&self.state), "--name", &host.name])
            .args(["--role", "host", "--address", &address, &path(&request)]);
        self.act(sign.output(&card))?;
        drop(signing);
        self.on_with(host, &host::join(host), &card).map(drop)
    }

    /// Whether a host needs a new card, whatever it has.
    fn is_old(&self, host: &Host) -> Result<bool> {
        let list = self.state.join("admin/hosts.toml");
        let Ok(text) = fs::read_to_string(&list) else { return Ok(true) };
        let known: Known = toml::from_str(&text).with_context(|| path(&list))?;
        if known.hosts.get(&host.name) != Some(&host.listens_at().to_string()) {
            return Ok(true);
        }
        let Ok(card) = fs::metadata(self.file(&host.name, "card")) else { return Ok(true) };
        let age = SystemTime::now().duration_since(card.modified()?).unwrap_or_default();
        Ok(age > RENEW_AFTER)
    }

    /// What a daemon is started of.
    fn stamp(&self, host: &str) -> Result<String> {
        let files = [
            self.program("gossamerd"),
            self.file(host, "card"),
            self.file(host, "toml"),
            self.file(host, "service"),
        ];
        let digests: Vec<String> =
            files.iter().map(|file| self.digest(file)).collect::<Result<_>>()?;
        Ok(digests
            .iter()
            .map(|digest| &digest[..digest.len().min(16)])
            .collect::<Vec<_>>()
            .join("-"))
    }

    /// Runs a program as a job on all hosts; its exit status.
    pub(crate) fn run(&self, bin: &str, threads: u32, arguments: &[String]) -> Result<u8> {
        let (hosts, threads) = (self.rack.names(), threads.to_string());
        let run = Action::new(self.inside.iter().chain([&path(&self.program("gossamer"))]))
            .env("GOSSAMER_IDENTITY", &self.state.join("admin"))
            .args(["run", "--hosts", &hosts, "--threads", &threads, "--"])
            .args([path(&self.program(bin))])
            .args(arguments);
        self.note(format!("running {bin} on {hosts}"));
        if self.mode == Mode::Show {
            println!("{}", run.shown());
            return Ok(0);
        }
        self.interrupt.check()?;
        let child = run.command().stdin(Stdio::inherit()).spawn();
        self.interrupt.wait(child.context("cannot run gossamer")?)
    }

    /// Runs a script on a host.
    pub(crate) fn on(&self, host: &Host, script: &str) -> Result<String> {
        self.act(self.ssh(host, script))
    }

    fn on_with(&self, host: &Host, script: &str, input: &Path) -> Result<String> {
        self.act(self.ssh(host, script).input(input))
    }

    fn ssh(&self, host: &Host, script: &str) -> Action {
        let settings = self.ssh_settings.iter().flat_map(|file| ["-F".to_owned(), path(file)]);
        // Nobody is there to be asked for a password.
        Action::new(self.inside.clone())
            .args(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
            .args(settings)
            .args([host.ssh.as_str(), script])
    }

    fn act(&self, action: Action) -> Result<String> {
        match self.mode {
            Mode::Do => action.run(self.interrupt),
            Mode::Show => {
                println!("{}", action.shown());
                Ok(String::new())
            }
        }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    fn file(&self, host: &str, ending: &str) -> PathBuf {
        self.state.join("hosts").join(format!("{host}.{ending}"))
    }

    fn write(&self, file: &Path, text: &str) -> Result<()> {
        match self.mode {
            Mode::Do => fs::write(file, text).with_context(|| path(file)),
            Mode::Show => {
                println!("cat >{} <<END\n{text}END", path(file));
                Ok(())
            }
        }
    }

    /// The SHA-256 digest of a file; where nothing is run, a word that stands for it.
    fn digest(&self, file: &Path) -> Result<String> {
        if self.mode == Mode::Show || !file.exists() {
            return Ok("DIGEST".into());
        }
        let printed = Action::new(["sha256sum", &path(file)]).run(self.interrupt)?;
        Ok(printed.split_whitespace().next().unwrap_or_default().to_owned())
    }

    /// What is done next: a comment, where commands are shown.
    fn note(&self, what: String) {
        match self.mode {
            Mode::Do => eprintln!("deploy: {what}"),
            Mode::Show => println!("\n# {what}"),
        }
    }

    /// What was found; of interest only where something is done.
    fn say(&self, what: String) {
        if self.mode == Mode::Do {
            eprintln!("deploy: {what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn on_three<T: Send>(what: impl Fn(usize, &Host) -> Result<T> + Sync) -> Result<Vec<T>> {
        let host = |number: u32, name: &str| {
            let address = format!("10.0.0.{number}");
            format!("[[hosts]]\nname = \"{name}\"\nssh = \"{name}\"\naddress = \"{address}\"\n")
        };
        let text = format!("name = \"r\"\n{}{}{}", host(1, "a"), host(2, "b"), host(3, "c"));
        let (rack, interrupt) = (RackFile::parse(&text).unwrap(), Interrupt::never());
        let workspace = Workspace::find().unwrap();
        let state = std::env::temp_dir();
        Site::new(&workspace, &rack, state, Mode::Do, &interrupt).on_all("it has failed", what)
    }

    #[test]
    fn hosts_are_seen_to_side_by_side_and_told_of_in_their_order() {
        let all = Barrier::new(3);
        let done = on_three(|number, host| {
            all.wait();
            Ok((number, host.name.clone()))
        });
        let expected = [(0, "a".to_owned()), (1, "b".to_owned()), (2, "c".to_owned())];
        assert_eq!(done.unwrap(), expected);
    }

    #[test]
    fn what_goes_wrong_anywhere_is_told() {
        let failed = on_three(|number, _| {
            ensure!(number == 1, "no room");
            Ok(())
        });
        let told = failed.unwrap_err().to_string();
        assert_eq!(told, "it has failed:\n  a: no room\n  c: no room");
    }
}

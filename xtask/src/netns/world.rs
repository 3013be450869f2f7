//! [`World`]: the namespaces of a rack, the rack's identities, and its daemons.

use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where `ip` keeps its namespaces.
const NAMESPACES: &str = "/run/netns";
/// The namespace of the switch, which no host is named.
const SWITCH: &str = "switch";
/// The switch's number among the addresses; hosts count from 1.
const SWITCH_NUMBER: u32 = 254;
/// How long a daemon may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// The namespaces whose names begin with a prefix, and a folder with all that they need.
pub(crate) struct World {
    prefix: &'static str,
    place: PathBuf,
    programs: PathBuf,
}

impl World {
    /// The world of this prefix, whether or not it is there.
    pub(crate) fn new(workspace: &Workspace, prefix: &'static str) -> Self {
        let place = workspace.target().join("netns").join(prefix);
        Self { prefix, place, programs: workspace.target().join("release") }
    }

    /// A file in the folder of this world.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// A program that this workspace has built.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// The names of the hosts that are there.
    pub(crate) fn hosts(&self) -> Result<Vec<String>> {
        let mut hosts = self.namespaces()?;
        hosts.retain(|name| name != SWITCH);
        Ok(hosts)
    }

    /// The namespaces that are there, without the prefix.
    fn namespaces(&self) -> Result<Vec<String>> {
        // There is no such folder until the first namespace is made.
        let Ok(entries) = fs::read_dir(NAMESPACES) else { return Ok(Vec::new()) };
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: Vec<String> = names.collect::<Result<_>>()?;
        let ours = |name: &String| Some(name.strip_prefix(self.prefix)?.strip_prefix('.')?.into());
        let mut ours: Vec<String> = names.iter().filter_map(ours).collect();
        ours.sort();
        Ok(ours)
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// Takes this world for this process, which must not share it, until what is returned is
    /// dropped.
    pub(crate) fn claim(&self) -> Result<File> {
        let name = self.place.with_extension("lock");
        fs::create_dir_all(self.place.parent().unwrap_or(&self.place))?;
        let lock =
            File::create(&name).with_context(|| format!("cannot make {}", name.display()))?;
        lock.try_lock().with_context(|| {
            format!("another command uses the namespaces `{}.*`: wait for it", self.prefix)
        })?;
        Ok(lock)
    }

    /// Makes the namespaces and the rack, and starts a daemon in each.
    pub(crate) fn up(&self, hosts: u32) -> Result<()> {
        let names = letters(hosts);
        self.make_network(&names)?;
        self.make_rack(&names)?;
        (1..).zip(&names).try_for_each(|(number, name)| self.start_daemon(number, name))
    }

    /// Makes the folder and the namespaces, with nothing in them.
    pub(crate) fn make_network(&self, names: &[String]) -> Result<()> {
        fs::create_dir_all(&self.place)?;
        self.network(names).iter().try_for_each(|words| ip(words)).context("namespaces need root")
    }

    /// What `ip` is told to make the namespaces and their cables.
    pub(crate) fn network(&self, names: &[String]) -> Vec<String> {
        let switch = self.namespace(SWITCH);
        let mut words = vec![
            format!("netns add {switch}"),
            format!("-n {switch} link set dev lo up"),
            format!("-n {switch} link add name bridge type bridge"),
            format!("-n {switch} address add {}/24 dev bridge", address(SWITCH_NUMBER)),
            format!("-n {switch} link set dev bridge up"),
        ];
        for (number, name) in (1..).zip(names) {
            let (host, address) = (self.namespace(name), address(number));
            words.extend([
                format!("netns add {host}"),
                format!("-n {switch} link add name {name} type veth peer name eth0 netns {host}"),
                format!("-n {switch} link set dev {name} master bridge up"),
                format!("-n {host} address add {address}/24 dev eth0"),
                format!("-n {host} link set dev lo up"),
                format!("-n {host} link set dev eth0 up"),
            ]);
        }
        words
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
        let mut command = self.inside(name, &self.program("gossamerd"));
        // Only root makes namespaces.
        command
            .args(["--allow-root", "--config"])
            .arg(&settings)
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        // It stays when the command that has started it is done, or interrupted.
        let mut daemon = command.process_group(0).spawn().context("cannot start a daemon")?;
        let deadline = Instant::now() + PATIENCE;
        while !state.join("address").exists() {
            let is_there = daemon.try_wait()?.is_none() && Instant::now() < deadline;
            ensure!(is_there, "the daemon of {name} does not listen; {} says why", log.display());
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Kills everything in the namespaces, and removes them and the folder.
    pub(crate) fn down(&self) -> Result<()> {
        for name in self.namespaces()? {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let processes = self.processes(&name)?;
                if processes.is_empty() {
                    break;
                }
                ensure!(Instant::now() < deadline, "processes of {name} survive: {processes:?}");
                processes.iter().for_each(|process| signal(*process, "KILL"));
                sleep(Duration::from_millis(10));
            }
            ip(&format!("netns delete {}", self.namespace(&name)))?;
        }
        match fs::remove_dir_all(&self.place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The processes in the namespace of a host.
    pub(crate) fn processes(&self, host: &str) -> Result<Vec<u32>> {
        let inode = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
        let namespace = inode(&Path::new(NAMESPACES).join(self.namespace(host)))?;
        let numbers = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        // One that has ended meanwhile is in no namespace.
        let is_there = |process: &u32| {
            let found = inode(Path::new(&format!("/proc/{process}/ns/net")));
            found.is_ok_and(|found| found == namespace)
        };
        Ok(numbers.filter(is_there).collect())
    }

    /// Pulls the cable of a host out of the switch, or puts it back.
    pub(crate) fn set_cable(&self, host: &str, is_in: bool) -> Result<()> {
        let state = if is_in { "up" } else { "down" };
        ip(&format!("-n {} link set dev {host} {state}", self.namespace(SWITCH)))
    }

    /// The `gossamer` command at the switch, as the administrator.
    pub(crate) fn gossamer(&self, arguments: &[&str]) -> Command {
        let mut command = self.inside(SWITCH, &self.program("gossamer"));
        command.env("GOSSAMER_IDENTITY", self.file("rack/operator")).args(arguments);
        command
    }

    fn inside(&self, name: &str, program: &Path) -> Command {
        let words = self.at(name);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program).stdin(Stdio::null());
        command
    }

    /// What stands in front of a command that runs on a host.
    pub(crate) fn at(&self, name: &str) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(name)].map(str::to_owned).into()
    }

    /// What stands in front of a command that runs at the switch.
    pub(crate) fn at_switch(&self) -> Vec<String> {
        self.at(SWITCH)
    }

    fn output(&self, command: &mut Command) -> Result<Vec<u8>> {
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {said}");
        Ok(output.stdout)
    }
}

/// The names of so many hosts.
pub(crate) fn letters(hosts: u32) -> Vec<String> {
    (b'a'..=b'z').map(|letter| char::from(letter).into()).take(hosts as usize).collect()
}

/// The address of a host, by its number.
pub(crate) fn address(number: u32) -> String {
    format!("10.77.0.{number}")
}

/// Runs `ip` with arguments that are split at spaces.
fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.context("cannot run `ip` (apt-get install iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {arguments}` failed: {}", said.trim());
    Ok(())
}

/// Sends a process a signal by its name; one that is gone needs none.
pub(crate) fn signal(process: u32, name: &str) {
    let mut kill = Command::new("kill");
    let _ = kill.args(["-s", name, &process.to_string()]).stderr(Stdio::null()).status();
}

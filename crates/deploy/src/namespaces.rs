//! [`Namespaces`]: several hosts on this machine. Each is a network namespace with an address of its
//! own; cables (pairs of virtual interfaces) lead from each to a switch (a bridge in one more
//! namespace). Needs root and `ip` (iproute2).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::interrupt::signal;

/// Where `ip` keeps its namespaces.
const NAMESPACES: &str = "/run/netns";
/// The namespace of the switch, which is no host's name.
const SWITCH: &str = "switch";
/// The switch's number among the addresses; hosts count from 1.
const SWITCH_NUMBER: u32 = 254;
/// The time that killed processes have to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// The namespaces whose names begin with a prefix, and a directory for their files.
#[derive(Debug)]
pub struct Namespaces {
    prefix: &'static str,
    folder: PathBuf,
}

impl Namespaces {
    /// The namespaces of `prefix`, whether or not they exist.
    pub fn new(prefix: &'static str, folder: &Path) -> Self {
        Self { prefix, folder: folder.to_owned() }
    }

    /// A file in their directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The names of the hosts that exist.
    ///
    /// # Errors
    /// If the namespaces cannot be listed.
    pub fn hosts(&self) -> Result<Vec<String>> {
        let mut hosts = self.namespaces()?;
        hosts.retain(|name| name != SWITCH);
        Ok(hosts)
    }

    /// The namespaces that exist, without the prefix.
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

    /// Locks these namespaces for this process, until the file that is returned is dropped.
    ///
    /// # Errors
    /// If another process has locked them.
    pub fn claim(&self) -> Result<File> {
        let name = self.folder.with_extension("lock");
        fs::create_dir_all(self.folder.parent().unwrap_or(&self.folder))?;
        let lock =
            File::create(&name).with_context(|| format!("cannot make {}", name.display()))?;
        lock.try_lock().with_context(|| {
            format!("the namespaces `{}.*` are in use by another command: wait for it", self.prefix)
        })?;
        Ok(lock)
    }

    /// Makes the directory and the namespaces.
    ///
    /// # Errors
    /// Without root, or without `ip`.
    pub fn make(&self, names: &[String]) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.commands(names).iter().try_for_each(|words| ip(words)).context("namespaces need root")
    }

    /// The arguments of `ip` that make the namespaces and their cables.
    pub fn commands(&self, names: &[String]) -> Vec<String> {
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

    /// Kills all processes in the namespaces, and removes them and the directory.
    ///
    /// # Errors
    /// If a process survives, or `ip` fails.
    pub fn down(&self) -> Result<()> {
        for name in self.namespaces()? {
            let deadline = Instant::now() + KILL_TIMEOUT;
            loop {
                let processes = self.processes(&name)?;
                if processes.is_empty() {
                    break;
                }
                ensure!(
                    Instant::now() < deadline,
                    "processes of {name} survive SIGKILL: {processes:?}"
                );
                processes.iter().for_each(|process| signal(*process, "KILL"));
                sleep(Duration::from_millis(10));
            }
            ip(&format!("netns delete {}", self.namespace(&name)))?;
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The processes in the namespace of a host.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn processes(&self, host: &str) -> Result<Vec<u32>> {
        let inode = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
        let namespace = inode(&Path::new(NAMESPACES).join(self.namespace(host)))?;
        let numbers = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        // A process that has ended meanwhile is in no namespace.
        let is_inside = |process: &u32| {
            let found = inode(Path::new(&format!("/proc/{process}/ns/net")));
            found.is_ok_and(|found| found == namespace)
        };
        Ok(numbers.filter(is_inside).collect())
    }

    /// Unplugs the cable of a host from the switch, or plugs it in.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn plug(&self, host: &str, is_in: bool) -> Result<()> {
        let state = if is_in { "up" } else { "down" };
        ip(&format!("-n {} link set dev {host} {state}", self.namespace(SWITCH)))
    }

    /// The words in front of a command that runs on a host.
    pub fn at(&self, name: &str) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(name)].map(str::to_owned).into()
    }

    /// The words in front of a command that runs at the switch.
    pub fn at_switch(&self) -> Vec<String> {
        self.at(SWITCH)
    }
}

/// The names of the first `hosts` hosts: a, b, c and so on.
pub fn letters(hosts: u32) -> Vec<String> {
    (b'a'..=b'z').map(|letter| char::from(letter).into()).take(hosts as usize).collect()
}

/// The address of a host, by its number.
pub fn address(number: u32) -> String {
    format!("10.77.0.{number}")
}

/// Runs `ip` with arguments that are split at spaces.
fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.context("cannot run `ip` (apt-get install iproute2)")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {arguments}` failed: {}", errors.trim());
    Ok(())
}

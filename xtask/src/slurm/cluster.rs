//! [`Cluster`]: a Slurm whose nodes are all on this machine.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, process};

use anyhow::{Context, Result, bail, ensure};
use gossamer_deploy::interrupt::{Interrupt, signal};

use crate::slurm::{POLL_INTERVAL, until};

const NODES: u16 = 4;
/// The time that daemons have to end after SIGTERM, and processes after SIGKILL.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// The programs that are run, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("munged", "munge"),
    ("slurmctld", "slurm-wlm"),
    ("slurmd", "slurm-wlm"),
    ("srun", "slurm-wlm"),
    ("sbatch", "slurm-wlm"),
    ("sinfo", "slurm-wlm"),
];

/// The daemons of a Slurm, and a folder for their files.
pub(super) struct Cluster {
    folder: PathBuf,
    daemons: Vec<Child>,
}

/// Fails if this machine has not got what is needed, and says what is missing.
pub(super) fn check() -> Result<()> {
    let missing: Vec<_> = PROGRAMS.iter().filter(|(name, _)| find(name).is_none()).collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
        bail!("{} are missing: apt-get install slurm-wlm munge", names.join(", "));
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    ensure!(user == Some("0"), "Slurm's daemons start tasks for others: this needs root");
    Ok(())
}

/// Where a program is; daemons are seldom where the shell looks.
fn find(name: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

impl Cluster {
    /// Starts the daemons and waits until all nodes are ready.
    pub(super) fn start(interrupt: &Interrupt) -> Result<Self> {
        let folder = env::temp_dir().join(format!("gossamer-slurm-{}", process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut cluster = Self { folder, daemons: Vec::new() };
        match cluster.bring_up(interrupt) {
            Ok(()) => Ok(cluster),
            Err(error) => {
                eprintln!("{}", cluster.logs());
                cluster.stop();
                Err(error)
            }
        }
    }

    fn bring_up(&mut self, interrupt: &Interrupt) -> Result<()> {
        for folder in ["munge", "state", "spool"] {
            fs::create_dir(self.file(folder))?;
        }
        // The key authenticates any user of this Slurm.
        let mut key = [0; 64];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let munge = |name: &str| self.file("munge").join(name);
        fs::write(munge("key"), key)?;
        fs::set_permissions(munge("key"), fs::Permissions::from_mode(0o600))?;
        fs::write(self.file("slurm.conf"), self.configuration()?)?;

        let files = ["key-file=key", "socket=socket", "pid-file=pid", "seed-file=seed"];
        let files = files.map(|option| {
            let (option, name) = option.split_once('=').expect("both");
            format!("--{option}={}", munge(name).display())
        });
        let log = format!("--log-file={}", self.file("munged.log").display());
        self.daemon("munged", &[&["--foreground".to_owned(), log], &files[..]].concat())?;
        let socket = self.file("munge").join("socket");
        until("munged listens", interrupt, || socket.exists().then_some(()))?;
        self.daemon("slurmctld", &["-D".into(), "-c".into()])?;
        for node in 1..=NODES {
            self.daemon("slurmd", &["-D".into(), "-N".into(), format!("n{node}")])?;
        }
        until("all nodes are ready", interrupt, || {
            let sinfo =
                self.command("sinfo").args(["-h", "-t", "idle", "-o", "%D"]).output().ok()?;
            (String::from_utf8_lossy(&sinfo.stdout).trim() == NODES.to_string()).then_some(())
        })
    }

    /// The settings of this Slurm.
    fn configuration(&self) -> Result<String> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let host = host.trim().split('.').next().unwrap_or_default();
        let (folder, ports) = (self.folder.display(), free_ports()?);
        let (first, rest) = ports.split_first().context("ports")?;
        let nodes: Vec<_> = (1..)
            .zip(rest)
            .map(|(node, port)| {
                format!(
                    "NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2\n"
                )
            })
            .collect();
        Ok(format!(
            "ClusterName=gossamer\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={first}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
             AuthInfo=socket={folder}/munge/socket\nCredType=cred/munge\n\
             StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool/%n\n\
             SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/%n.pid\n\
             SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/%n.log\n\
             SlurmdParameters=config_overrides\nProctrackType=proctrack/pgid\n\
             TaskPlugin=task/none\nSelectType=select/cons_tres\nMpiDefault=none\n\
             ReturnToService=2\nPlugStackConfig=/dev/null\n{}\
             PartitionName=all Nodes=ALL Default=YES\n",
            nodes.concat()
        ))
    }

    fn daemon(&mut self, name: &str, arguments: &[String]) -> Result<()> {
        let mut command = self.command(name);
        let output = File::options().create(true).append(true).open(self.file("daemons.log"))?;
        command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        self.daemons.push(command.spawn().with_context(|| format!("cannot start {name}"))?);
        Ok(())
    }

    /// A file in the folder of this cluster.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A program of Slurm, for this cluster.
    pub(super) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(find(name).unwrap_or_else(|| name.into()));
        // Variables of another Slurm are not for this one.
        for (variable, _) in env::vars().filter(|(name, _)| name.starts_with("SLURM")) {
            command.env_remove(variable);
        }
        command.env("SLURM_CONF", self.file("slurm.conf")).current_dir(&self.folder);
        command
    }

    /// The processes of this cluster, its daemons among them, and their environments.
    fn processes(&self) -> impl Iterator<Item = (u32, String)> {
        let conf = format!("SLURM_CONF={}", self.file("slurm.conf").display());
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let is_ours = environment.split('\0').any(|variable| variable == conf);
            is_ours.then_some((pid, environment))
        })
    }

    /// The processes of this cluster's tasks that have runtime threads, by the number of their task.
    pub(super) fn tasks(&self) -> Vec<u32> {
        let number = |(pid, environment): (u32, String)| -> Option<(u32, u32)> {
            let mut variables = environment.split('\0');
            let task = variables.find_map(|variable| variable.strip_prefix("SLURM_PROCID="))?;
            let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
            let mut names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")));
            let works = names.any(|name| name.is_ok_and(|name| name.starts_with("gossamer-")));
            works.then_some((task.parse().ok()?, pid))
        };
        let mut tasks: Vec<_> = self.processes().filter_map(number).collect();
        tasks.sort();
        tasks.into_iter().map(|(_, pid)| pid).collect()
    }

    /// The logs of the daemons.
    pub(super) fn logs(&self) -> String {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let logs =
            entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "log"));
        let log = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        logs.map(|entry| format!("--- {}\n{}", entry.path().display(), log(&entry.path())))
            .collect()
    }

    /// Ends the daemons, the last first, and the processes that they started; removes the folder.
    pub(super) fn stop(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        for mut daemon in self.daemons.drain(..).rev() {
            // Fails if it has ended already.
            signal(daemon.id(), "TERM");
            wait(deadline, || !matches!(daemon.try_wait(), Ok(None)));
        }
        // Tasks, and the processes that watch them, outlive their daemons.
        wait(Instant::now() + SHUTDOWN_GRACE, || {
            self.processes().map(|(pid, _)| signal(pid, "KILL")).count() == 0
        });
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until `happened` returns true, or until `deadline`.
fn wait(deadline: Instant, mut happened: impl FnMut() -> bool) {
    while !happened() && Instant::now() < deadline {
        sleep(POLL_INTERVAL);
    }
}

/// Free ports for the controller and each node.
fn free_ports() -> Result<Vec<u16>> {
    let sockets: Vec<_> =
        (0..=NODES).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

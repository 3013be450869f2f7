//! A rack of real daemons on this machine, each with its own port and directory, and the real
//! `gossamer` command to call them with.
//!
//! Every process of a test's jobs has the test's tag in its environment, so that a test can count
//! what is left.
//!
//! Daemons refuse to run as root, and root is refused nothing. So where the tests are run by root,
//! the daemons and the command run as another user.

#![allow(dead_code, reason = "every test program uses a part of this")]

pub(crate) mod calls;
pub(crate) mod false_daemon;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long something may take that has to happen. Nothing is asserted about how long it takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The user of daemons where root runs the tests: on every system one without rights (65534).
pub(crate) const USER: u32 = 65534;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command of a user who is not root.
pub(crate) fn as_user(program: &str) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(USER).gid(USER);
    }
    command
}

/// A program of this workspace, where every user can run it.
pub(crate) fn program(built: &str) -> String {
    let is_open = |folder: &Path| {
        fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
    };
    if !is_root() || Path::new(built).ancestors().skip(1).all(is_open) {
        return built.to_owned();
    }
    static COPIES: OnceLock<TempDir> = OnceLock::new();
    let copies = COPIES.get_or_init(|| {
        let copies = tempfile::tempdir().unwrap();
        fs::set_permissions(copies.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copies
    });
    let copy = copies.path().join(Path::new(built).file_name().unwrap());
    // Whole or not at all: other tests use it.
    let part = tempfile::NamedTempFile::new_in(copies.path()).unwrap();
    fs::copy(built, part.path()).unwrap();
    part.persist(&copy).unwrap();
    copy.to_str().unwrap().to_owned()
}

pub(crate) fn gossamerd() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| program(env!("CARGO_BIN_EXE_gossamerd")))
}

fn gossamer() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| program(env!("CARGO_BIN_EXE_gossamer")))
}

/// Waits until `happened` has something to give.
pub(crate) fn eventually<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = happened() {
            return value;
        }
        assert!(Instant::now() < deadline, "this never happened: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// The program of the jobs, `kv`, built as this test is.
pub(crate) fn kv() -> &'static str {
    static KV: OnceLock<String> = OnceLock::new();
    KV.get_or_init(build_kv)
}

fn build_kv() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_gossamerd")).parent().expect("a folder");
    let name = folder.file_name().and_then(|name| name.to_str()).expect("a profile");
    let profile = if name == "debug" { "dev" } else { name };
    let mut cargo = Command::new(env!("CARGO"));
    // Cargo's variables about this test: build scripts that read them, as ring's does, would run again,
    // and all that stands on them would be built again, here and by the next cargo.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    // With the features of the workspace's tests: for an example, cargo counts those of dependencies of tests.
    cargo.args(["build", "--workspace", "--bin", "kv", "--example", "counter"]);
    cargo.args(["--profile", profile]).arg("--target-dir");
    let built = cargo.arg(folder.parent().expect("a target folder")).output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program(folder.join("kv").to_str().expect("a name"))
}

/// A bench that goes on until it is ended.
pub(crate) const ENDLESS: [&str; 6] =
    ["--records", "300", "--operations", "1000000000000", "--seconds", "600"];

/// A rack of daemons.
pub(crate) struct Rack {
    pub(crate) place: TempDir,
    names: Vec<String>,
    daemons: Vec<Option<Child>>,
    /// Lines of the configuration of every daemon.
    settings: &'static str,
    /// Whether daemons run as the user who runs the tests, even if that is root.
    is_own_user: bool,
    /// The cgroup in which daemons are started.
    cgroup: Option<PathBuf>,
    pub(crate) tag: String,
}

impl Rack {
    /// A rack with these hosts, whose daemons run: the first made by `rack init`, the others by
    /// `rack join` and `rack sign`.
    pub(crate) fn new(names: &[&str]) -> Self {
        Self::with(names, "")
    }

    /// The same, with more lines of configuration.
    pub(crate) fn with(names: &[&str], settings: &'static str) -> Self {
        Self::made(names, settings, false, None)
    }

    /// A rack whose daemons run as the tests' user, even if that is root.
    pub(crate) fn as_own_user(names: &[&str]) -> Self {
        Self::made(names, "", true, None)
    }

    /// A rack of one daemon, which is started in a cgroup.
    pub(crate) fn in_cgroup(name: &str, cgroup: &Path) -> Self {
        Self::made(&[name], "", false, Some(cgroup.to_owned()))
    }

    fn made(
        names: &[&str],
        settings: &'static str,
        is_own_user: bool,
        cgroup: Option<PathBuf>,
    ) -> Self {
        let place = tempfile::tempdir().unwrap();
        if is_root() && !is_own_user {
            chown(place.path(), Some(USER), Some(USER)).unwrap();
        }
        let tag = format!("{}-{}", std::process::id(), place.path().display());
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let daemons = names.iter().map(|_| None).collect();
        let mut rack = Self { place, names, daemons, settings, is_own_user, cgroup, tag };
        let dir = rack.path("rack");
        let first = rack.names[0].clone();
        let made = rack
            .gossamer(&["rack", "init", "--name", "testrack", "--dir", &dir])
            .args(["--host", &first, "--address", "127.0.0.1:7474"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        for name in &rack.names[1..] {
            rack.join(name, "host");
        }
        for number in 0..rack.names.len() {
            rack.start_daemon(number);
        }
        rack
    }

    /// Makes an identity by `rack join` and `rack sign`.
    pub(crate) fn join(&self, name: &str, role: &str) {
        let (dir, identity) = (self.path("rack"), self.path(&format!("rack/{name}")));
        let run = |arguments: &[&str]| {
            let output = self.gossamer(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            output.stdout
        };
        let request = self.path(&format!("{name}.request"));
        fs::write(&request, run(&["rack", "join", "--identity", &identity])).unwrap();
        let mut sign = vec!["rack", "sign", "--dir", &dir, "--name", name, "--role", role];
        if role == "host" {
            sign.extend(["--address", "127.0.0.1:7474"]);
        }
        sign.push(&request);
        let card = self.path(&format!("{name}.card"));
        fs::write(&card, run(&sign)).unwrap();
        run(&["rack", "join", "--identity", &identity, "--card", &card]);
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.place.path().join(name).to_str().unwrap().to_owned()
    }

    /// The directory of a daemon.
    pub(crate) fn state(&self, number: usize) -> PathBuf {
        self.place.path().join(format!("state-{}", self.names[number]))
    }

    /// Starts a daemon, and tells the members of the rack where it listens.
    pub(crate) fn start_daemon(&mut self, number: usize) {
        let name = &self.names[number];
        let state = self.state(number);
        let config = self.path(&format!("{name}.toml"));
        let text = format!(
            "identity = \"rack/{name}\"\nstate = \"state-{name}\"\nlisten = \"127.0.0.1:0\"\n\
             metrics = \"127.0.0.1:0\"\n{}",
            self.settings
        );
        fs::write(&config, text).unwrap();
        let address = state.join("address");
        let _ = fs::remove_file(&address);
        let log = fs::File::options().create(true).append(true).open(self.log_file(number));
        let mut command = match &self.cgroup {
            None => self.command(gossamerd()),
            Some(cgroup) => {
                // Root puts it there, and makes it another user.
                let script = "echo 0 >\"$0/cgroup.procs\" && exec setpriv --reuid \"$1\" --regid \
                              \"$1\" --clear-groups \"$2\" --config \"$3\"";
                let mut command = Command::new("sh");
                let user = USER.to_string();
                command.args(["-c", script, cgroup.to_str().unwrap(), &user, gossamerd()]);
                command.arg(&config);
                command
            }
        };
        if self.cgroup.is_none() {
            command.args(["--config", &config]);
        }
        if self.is_own_user {
            command.arg("--allow-root");
        }
        let daemon = command
            .env("RUST_LOG", "debug")
            .stdin(Stdio::null())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        self.daemons[number] = Some(daemon);
        let daemon = self.daemons[number].as_mut().unwrap();
        eventually("the daemon listens", || {
            assert!(daemon.try_wait().unwrap().is_none(), "the daemon has ended");
            address.exists().then_some(())
        });
        self.write_hosts();
    }

    pub(crate) fn log_file(&self, number: usize) -> PathBuf {
        self.place.path().join(format!("{}.log", self.names[number]))
    }

    /// What a daemon has counted, as it serves it.
    pub(crate) fn metrics(&self, number: usize) -> String {
        let log = eventually("the daemon says where it serves metrics", || {
            let log = fs::read_to_string(self.log_file(number)).unwrap();
            log.contains("serving metrics").then_some(log)
        });
        let line = log.lines().find(|line| line.contains("serving metrics")).unwrap();
        let (_, address) = line.rsplit_once("address=").unwrap();
        let mut stream = TcpStream::connect(address.trim()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// Where a daemon listens.
    pub(crate) fn address(&self, number: usize) -> String {
        fs::read_to_string(self.state(number).join("address")).unwrap()
    }

    fn write_hosts(&self) {
        let mut hosts = "[hosts]\n".to_owned();
        for (number, name) in self.names.iter().enumerate() {
            if self.daemons[number].is_some() {
                hosts.push_str(&format!("\"{name}\" = \"{}\"\n", self.address(number)));
            }
        }
        for member in ["admin", "viewer"] {
            let place = self.place.path().join("rack").join(member);
            if place.exists() {
                fs::write(place.join("hosts.toml"), &hosts).unwrap();
            }
        }
    }

    /// Makes a member who may only look.
    pub(crate) fn add_viewer(&self) {
        self.join("viewer", "viewer");
        self.write_hosts();
    }

    pub(crate) fn daemon_pid(&self, number: usize) -> u32 {
        self.daemons[number].as_ref().unwrap().id()
    }

    /// Sends a daemon a signal and waits for its end.
    pub(crate) fn end_daemon(&mut self, number: usize, signal: &str) {
        let mut daemon = self.daemons[number].take().unwrap();
        send(daemon.id(), signal);
        daemon.wait().unwrap();
    }

    fn command(&self, program: &str) -> Command {
        if self.is_own_user { Command::new(program) } else { as_user(program) }
    }

    /// The `gossamer` command as the administrator.
    pub(crate) fn gossamer(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(gossamer());
        command.env("GOSSAMER_IDENTITY", self.path("rack/admin")).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `gossamer run` with one thread, and the test's tag in the environment of its processes.
    pub(crate) fn run(&self, hosts: &str, program: &[&str]) -> Command {
        let tag = format!("TEST_TAG={}", self.tag);
        let run = ["run", "--hosts", hosts, "--threads", "1", "--env", &tag, "--"];
        let mut command = self.gossamer(&run);
        command.args(program);
        command
    }

    /// Runs a shell script on hosts, to its end.
    pub(crate) fn script(&self, hosts: &str, script: &str) -> Ran {
        Ran::from(self.run(hosts, &["sh", "-c", script]).output().unwrap())
    }

    /// Starts a shell script on hosts.
    pub(crate) fn start(&self, hosts: &str, script: &str) -> Child {
        self.run(hosts, &["sh", "-c", script]).spawn().unwrap()
    }

    /// The processes of this rack's jobs: those with the test's tag.
    pub(crate) fn processes(&self) -> Vec<u32> {
        with_variable("TEST_TAG", &self.tag)
    }

    /// The processes of this rack's jobs on one host.
    pub(crate) fn processes_on(&self, host: u32) -> Vec<u32> {
        let is_there = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            let suffix = format!(".{host}");
            variables.any(|entry| {
                entry.starts_with(b"GOSSAMER_JOB=") && entry.ends_with(suffix.as_bytes())
            })
        };
        self.processes().into_iter().filter(is_there).collect()
    }

    /// Waits until `count` hosts, from host 0, have made a file `ready-HOST`.
    pub(crate) fn wait_ready(&self, count: usize) {
        for host in 0..count {
            let file = self.place.path().join(format!("ready-{host}"));
            eventually("the processes are ready", || file.exists().then_some(()));
        }
    }

    /// The start of scripts that show when they are ready.
    pub(crate) fn ready(&self) -> String {
        format!("touch {}/ready-${{GOSSAMER_JOB##*.}}; ", self.place.path().display())
    }

    /// Waits until nothing is left of this rack's jobs.
    pub(crate) fn assert_nothing_left(&self) {
        eventually("no process of the job is left", || self.processes().is_empty().then_some(()));
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().flatten() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            for number in 0..self.names.len() {
                let log = fs::read_to_string(self.log_file(number)).unwrap_or_default();
                eprintln!("--- {}\n{log}", self.names[number]);
            }
        }
        // Whatever a failed test has left.
        self.processes().into_iter().for_each(|pid| send(pid, "KILL"));
    }
}

/// The output of a command, and its exit status.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Waits for the end of a command that was started.
pub(crate) fn finish(child: Child) -> Ran {
    Ran::from(child.wait_with_output().unwrap())
}

/// Reads the output of a command until it contains `text`.
pub(crate) fn read_until(from: &mut impl Read, text: &str) -> String {
    let mut output = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&output).contains(text) {
        assert_eq!(from.read(&mut byte).unwrap(), 1, "only {:?}", String::from_utf8_lossy(&output));
        output.push(byte[0]);
    }
    String::from_utf8(output).unwrap()
}

/// Sends a signal by its name.
pub(crate) fn send(pid: u32, signal: &str) {
    let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).output();
}

/// The living processes with a variable in their environment.
pub(crate) fn with_variable(name: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{name}={value}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Of a process: the number of its parent.
pub(crate) fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

/// How many entries a directory has.
pub(crate) fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

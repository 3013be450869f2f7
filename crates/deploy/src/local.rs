//! A deployment on this machine alone: its hosts are network namespaces, each with its own sshd. The
//! keys of hosts and user are made for it, and removed with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::action::{Action, path};
use crate::deployment::{Deployment, Programs};
use crate::interrupt::Interrupt;
use crate::mode::{Mode, print};
use crate::namespaces::{Namespaces, address, letters};
use crate::rack_file::RackFile;

/// The prefix of the namespaces.
pub const PREFIX: &str = "gossamer-deploy";
/// The directory of sshd for connections that are not logged in yet; sshd requires it.
const SSHD_FOLDER: &str = "/run/sshd";
/// The time that an sshd has to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Makes `hosts` hosts with their files in `folder`, calls `work` with a deployment to them, and
/// removes everything, also after an error or a signal.
///
/// # Errors
/// If the hosts cannot be made or removed, and what `work` returns.
pub fn with<T>(
    programs: &Programs,
    folder: &Path,
    hosts: u32,
    mode: Mode,
    interrupt: &Interrupt,
    work: impl FnOnce(&Deployment<'_>) -> Result<T>,
) -> Result<T> {
    let namespaces = Namespaces::new(PREFIX, folder);
    let local = Local { namespaces: &namespaces, names: letters(hosts), mode, interrupt };
    let rack = RackFile::parse(&local.rack_file())?;
    let deployment = Deployment::new(programs, &rack, namespaces.file("rack"), mode, interrupt)
        .through(namespaces.at_switch(), namespaces.file("ssh_config"));
    if mode == Mode::DryRun {
        local.up()?;
        return work(&deployment);
    }
    let _lock = namespaces.claim()?;
    // Those of an earlier deployment that was killed.
    namespaces.down()?;
    let done = local.up().and_then(|()| work(&deployment));
    let down = namespaces.down().context("cannot remove the local hosts");
    let done = done?;
    down.map(|()| done)
}

/// The hosts of this machine.
struct Local<'a> {
    namespaces: &'a Namespaces,
    names: Vec<String>,
    mode: Mode,
    interrupt: &'a Interrupt,
}

impl Local<'_> {
    /// The text of a `rack.toml` for these hosts. Without systemd, since that of this machine would
    /// start daemons outside the namespaces.
    fn rack_file(&self) -> String {
        let hosts = (1..).zip(&self.names).map(|(number, name)| {
            let folder = self.file(&format!("{name}.home"));
            let address = address(number);
            format!(
                "\n[[hosts]]\nname = \"{name}\"\nssh = \"{name}\"\naddress = \"{address}\"\n\
                 folder = \"{}\"\nsystemd = false\nallow_root = true\n",
                path(&folder)
            )
        });
        format!("name = \"local\"\n{}", hosts.collect::<String>())
    }

    /// Makes the namespaces, the keys, and an sshd in each namespace.
    fn up(&self) -> Result<()> {
        let sshd = find_sshd()?;
        self.mode.step("a network namespace for each host, and a switch");
        if self.mode == Mode::Run {
            self.namespaces.make(&self.names)?;
        } else {
            self.namespaces
                .commands(&self.names)
                .iter()
                .for_each(|words| print(&format!("ip {words}")));
        }
        self.mode.step("a key for the user, and one for each host");
        let keys = self.names.iter().map(|name| format!("{name}.key"));
        for key in keys.chain(["user.key".into()]) {
            let key = path(&self.file(&key));
            self.act(Action::new(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &key]))?;
        }
        self.mode.step("an sshd on each host");
        self.act(Action::new(["mkdir", "-p", SSHD_FOLDER]))?;
        self.write("rack.toml", &self.rack_file())?;
        self.write("ssh_config", &self.client_settings())?;
        let mut known = String::new();
        for (number, name) in (1..).zip(&self.names) {
            self.interrupt.check()?;
            self.write(&format!("{name}.sshd"), &self.server_settings(number, name))?;
            self.start(&sshd, name)?;
            let key = self.public_key(name)?;
            known += &format!("{} {key}", address(number));
        }
        self.write("known_hosts", &known)
    }

    fn server_settings(&self, number: u32, name: &str) -> String {
        format!(
            "ListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nAuthenticationMethods publickey\n\
             PermitRootLogin prohibit-password\nUsePAM no\nStrictModes no\nPidFile none\n",
            address(number),
            path(&self.file(&format!("{name}.key"))),
            path(&self.file("user.key.pub")),
        )
    }

    fn client_settings(&self) -> String {
        let hosts = (1..).zip(&self.names);
        let hosts = hosts.map(|(n, name)| format!("Host {name}\n  HostName {}\n", address(n)));
        format!(
            "{}Host *\n  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  \
             GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n",
            hosts.collect::<String>(),
            path(&self.file("user.key")),
            path(&self.file("known_hosts")),
        )
    }

    fn start(&self, sshd: &Path, name: &str) -> Result<()> {
        let settings = path(&self.file(&format!("{name}.sshd")));
        let words = [path(sshd), "-D".into(), "-e".into(), "-f".into(), settings];
        let action = Action::new(self.namespaces.at(name)).args(words);
        if self.mode == Mode::DryRun {
            print(&format!("{} &", action.shown()));
            return Ok(());
        }
        let log = self.file(&format!("{name}.sshd.log"));
        let mut command = action.command();
        command.stdout(File::create(&log)?).stderr(File::create(&log)?);
        // Not ended by Ctrl-C, but with its namespace.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut sshd = command.spawn().context("cannot start sshd")?;
        let deadline = Instant::now() + START_TIMEOUT;
        let printed = || fs::read_to_string(&log).unwrap_or_default();
        while !printed().contains("Server listening") {
            let is_running = sshd.try_wait()?.is_none() && Instant::now() < deadline;
            ensure!(is_running, "the sshd of {name} does not listen:\n{}", printed());
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn public_key(&self, name: &str) -> Result<String> {
        match self.mode {
            Mode::Run => Ok(fs::read_to_string(self.file(&format!("{name}.key.pub")))?),
            Mode::DryRun => Ok(format!("(the content of {name}.key.pub)\n")),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.namespaces.file(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        self.mode.write(&self.file(name), text)
    }

    fn act(&self, action: Action) -> Result<()> {
        self.mode.act(&action, self.interrupt).map(drop)
    }
}

/// The path of sshd, which it must be started by.
fn find_sshd() -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut candidates =
        std::env::split_paths(&paths).chain(usual).map(|folder| folder.join("sshd"));
    candidates
        .find(|file| file.is_absolute() && file.is_file())
        .context("no sshd on this machine (apt-get install openssh-server)")
}

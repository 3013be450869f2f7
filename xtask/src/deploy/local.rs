//! A deployment on this machine alone: its hosts are network namespaces, each with its own sshd.
//! Keys of hosts and user are made for it, and gone with it.

use crate::deploy::action::{Action, path};
use crate::deploy::interrupt::Interrupt;
use crate::deploy::rack_file::RackFile;
use crate::deploy::site::{Mode, Site};
use crate::netns::world::{World, address, letters};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The prefix of the namespaces.
pub(crate) const PREFIX: &str = "gossamer-deploy";
/// Where sshd puts those who are not logged in yet; it insists on it.
const NOWHERE: &str = "/run/sshd";
/// How long an sshd may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes so many hosts, does something with them, and takes everything down, whatever came of it.
pub(crate) fn with<T>(
    workspace: &Workspace,
    hosts: u32,
    mode: Mode,
    interrupt: &Interrupt,
    deploy: impl FnOnce(&Site<'_>) -> Result<T>,
) -> Result<T> {
    let world = World::new(workspace, PREFIX);
    let local = Local { world: &world, names: letters(hosts), mode, interrupt };
    let rack = RackFile::parse(&local.rack_file())?;
    let site = Site::new(workspace, &rack, world.file("rack"), mode, interrupt);
    let site = site.by_way_of(world.at_switch(), world.file("ssh_config"));
    if mode == Mode::Show {
        local.up()?;
        return deploy(&site);
    }
    let _claim = world.claim()?;
    // What an earlier one has left that was killed.
    world.down()?;
    let done = local.up().and_then(|()| deploy(&site));
    // Whoever wants it to end wants this, too.
    let down = world.down().context("cannot take down what was made for it");
    let done = done?;
    down.map(|()| done)
}

/// The hosts of this machine.
struct Local<'a> {
    world: &'a World,
    names: Vec<String>,
    mode: Mode,
    interrupt: &'a Interrupt,
}

impl Local<'_> {
    /// What a user would write in `rack.toml`. The systemd of this machine would start daemons
    /// outside of the namespaces.
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
        self.note("a network namespace for each host, and a switch");
        if self.mode == Mode::Do {
            self.world.make_network(&self.names)?;
        } else {
            self.world.network(&self.names).iter().for_each(|words| println!("ip {words}"));
        }
        self.note("a key for the user, and one for each host");
        let keys = self.names.iter().map(|name| format!("{name}.key"));
        for key in keys.chain(["user.key".into()]) {
            let key = path(&self.file(&key));
            self.act(Action::new(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &key]))?;
        }
        self.note("an sshd on each host");
        self.act(Action::new(["mkdir", "-p", NOWHERE]))?;
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
        let action = Action::new(self.world.at(name)).args(words);
        if self.mode == Mode::Show {
            println!("{} &", action.shown());
            return Ok(());
        }
        let log = self.file(&format!("{name}.sshd.log"));
        let mut command = action.command();
        command.stdout(File::create(&log)?).stderr(File::create(&log)?);
        // Ctrl-C is not for it: it is taken down with its namespace.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut sshd = command.spawn().context("cannot start sshd")?;
        let deadline = Instant::now() + PATIENCE;
        let said = || fs::read_to_string(&log).unwrap_or_default();
        while !said().contains("Server listening") {
            let is_there = sshd.try_wait()?.is_none() && Instant::now() < deadline;
            ensure!(is_there, "the sshd of {name} does not listen:\n{}", said());
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn public_key(&self, name: &str) -> Result<String> {
        match self.mode {
            Mode::Do => Ok(fs::read_to_string(self.file(&format!("{name}.key.pub")))?),
            Mode::Show => Ok(format!("(the content of {name}.key.pub)\n")),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.world.file(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.file(name);
        match self.mode {
            Mode::Do => fs::write(&file, text).with_context(|| path(&file)),
            Mode::Show => {
                println!("cat >{} <<END\n{text}END", path(&file));
                Ok(())
            }
        }
    }

    fn act(&self, action: Action) -> Result<()> {
        match self.mode {
            Mode::Do => action.run(self.interrupt).map(drop),
            Mode::Show => {
                println!("{}", action.shown());
                Ok(())
            }
        }
    }

    fn note(&self, what: &str) {
        match self.mode {
            Mode::Do => eprintln!("deploy: {what}"),
            Mode::Show => println!("\n# {what}"),
        }
    }
}

/// Where sshd is: it must be named by its whole path.
fn find_sshd() -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&paths).chain(usual).map(|place| place.join("sshd"));
    places
        .find(|place| place.is_absolute() && place.is_file())
        .context("there is no sshd on this machine (apt-get install openssh-server)")
}

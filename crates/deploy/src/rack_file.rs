//! [`RackFile`]: the machines of a rack, as the user lists them (`dist/rack.toml` is an example).

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The port of daemons, if the file names none.
const PORT: u16 = 7474;
/// What names may be, for messages.
const NAMES: &str = "use lower-case letters, digits and hyphens, starting with a letter";

/// A rack and its machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RackFile {
    /// The name of the rack.
    pub name: String,
    /// Its hosts; the program's `main` runs on the first.
    pub hosts: Vec<Host>,
}

/// One machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name in the rack.
    pub name: String,
    /// The destination for ssh: `user@machine`, or a host of `~/.ssh/config`.
    pub ssh: String,
    /// Where its daemon listens, and the processes of its jobs.
    pub address: IpAddr,
    /// The daemon's port.
    #[serde(default = "port")]
    pub port: u16,
    /// The folder there for all that is installed; relative to the home directory.
    #[serde(default = "folder")]
    pub folder: String,
    /// Whether the daemon is a unit of the user's systemd, where there is one.
    #[serde(default = "systemd")]
    pub systemd: bool,
    /// Whether its daemon may run as root if ssh logs in as root.
    #[serde(default)]
    pub allow_root: bool,
}

fn systemd() -> bool {
    true
}

fn port() -> u16 {
    PORT
}

fn folder() -> String {
    "gossamer".into()
}

impl RackFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, or is invalid.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| {
            format!("cannot read {} (dist/rack.toml is an example)", path.display())
        })?;
        Self::parse(&text).with_context(|| format!("invalid rack file {}", path.display()))
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// If a key is unknown or missing, or a value is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let rack: Self = toml::from_str(text)?;
        ensure!(is_name(&rack.name), "invalid name {:?} for a rack: {NAMES}", rack.name);
        ensure!(!rack.hosts.is_empty(), "no hosts: a rack needs at least one");
        let mut names = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        for host in &rack.hosts {
            host.check()?;
            ensure!(names.insert(&host.name), "duplicate host name {}", host.name);
            let address = host.listens_at();
            ensure!(
                addresses.insert(address),
                "duplicate address {address}: each daemon needs its own"
            );
        }
        Ok(rack)
    }

    /// The names of the hosts, as `gossamer run --hosts` takes them.
    pub fn names(&self) -> String {
        self.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(",")
    }
}

impl Host {
    /// Names and folders become words of shell commands and names of files.
    fn check(&self) -> Result<()> {
        let Self { name, ssh, folder, .. } = self;
        ensure!(is_name(name), "invalid name {name:?} for a host: {NAMES}");
        ensure!(
            !["ca", "admin"].contains(&name.as_str()),
            "reserved name {name:?}: use another for the host"
        );
        ensure!(
            is_plain(ssh, "@:[]%"),
            "invalid ssh destination {ssh:?} of {name}: use user@machine, or a host of ~/.ssh/config"
        );
        ensure!(
            is_plain(folder, "/"),
            "invalid folder {folder:?} of {name}: use letters, digits and `/._-`"
        );
        Ok(())
    }

    /// Where its daemon listens.
    pub fn listens_at(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// Whether `text` can be the name of a member of a rack.
fn is_name(text: &str) -> bool {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= 63
        && !text.ends_with('-')
        && text.chars().all(is_good)
}

/// Whether `text` means itself to a shell and is no option.
fn is_plain(text: &str, more: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || more.contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_good)
}

/// A host for tests.
#[cfg(test)]
pub(crate) fn host(folder: &str) -> Host {
    let address = IpAddr::from([10, 0, 0, 1]);
    Host {
        name: "a".into(),
        ssh: "a".into(),
        address,
        port: 1,
        folder: folder.into(),
        systemd: true,
        allow_root: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
name = \"lab\"
[[hosts]]
name = \"a\"
ssh = \"ann@node-1\"
address = \"10.0.0.1\"
[[hosts]]
name = \"b\"
ssh = \"b\"
address = \"10.0.0.2\"
port = 7500
folder = \"/srv/gossamer\"
";

    #[test]
    fn a_rack_is_read_in_the_order_of_its_hosts() {
        let rack = RackFile::parse(GOOD).unwrap();
        assert_eq!((rack.name.as_str(), rack.names().as_str()), ("lab", "a,b"));
        assert_eq!(rack.hosts[0].listens_at().to_string(), "10.0.0.1:7474");
        assert_eq!(rack.hosts[0].folder, "gossamer");
        assert_eq!(rack.hosts[1].listens_at().to_string(), "10.0.0.2:7500");
    }

    #[test]
    fn the_example_is_good() {
        let example = include_str!("../../../dist/rack.toml");
        assert_eq!(RackFile::parse(example).unwrap().hosts.len(), 3);
    }

    #[test]
    fn what_a_shell_would_misunderstand_is_refused() {
        for (good, bad, reason) in [
            ("\"lab\"", "\"Lab\"", "invalid name \"Lab\" for a rack"),
            ("\"b\"\nssh", "\"a\"\nssh", "duplicate host name a"),
            ("\"b\"\nssh", "\"admin\"\nssh", "reserved name \"admin\""),
            ("ann@node-1", "-oProxyCommand=x", "invalid ssh destination"),
            ("/srv/gossamer", "/srv/$(id)", "invalid folder"),
            ("/srv/gossamer", "a b", "invalid folder"),
            ("10.0.0.2\"\nport = 7500", "10.0.0.1\"", "duplicate address 10.0.0.1:7474"),
            ("port = 7500", "prot = 7500", "prot"),
            ("\"10.0.0.2\"", "\"node-2\"", "invalid IP address"),
        ] {
            assert!(GOOD.contains(good), "{good}");
            let error = RackFile::parse(&GOOD.replace(good, bad)).unwrap_err();
            assert!(format!("{error:#}").contains(reason), "{bad}: {error:#}");
        }
        assert!(RackFile::parse("name = \"lab\"\nhosts = []").is_err());
    }
}

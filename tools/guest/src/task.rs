//! The task of a guest. It has the network of the simulated hosts, the command, and the
//! environment of the command. Everything travels as small shell scripts, in the archive that the
//! guest's kernel starts from.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use gossamer_deploy::action::quote;

use crate::archive::Archive;
use crate::kernel::Kernel;

/// Huge pages of 2 MiB that are set aside in a guest.
const HUGE_PAGES: u32 = 64;
/// Packets that may wait on a processor of a guest before the kernel drops more. Effectively unlimited: the
/// default, 1000, overflows when this machine is busy. When Soft-RoCE of Linux 6.1 cannot send the answer
/// of a READ, the queue pair may fail.
const BACKLOG: u32 = 1_000_000;
/// Variables of this process' environment that are meaningless in a guest; a name with an underscore
/// at the end is a prefix.
const NOT_FOR_GUESTS: [&str; 6] =
    ["PWD", "OLDPWD", "TMPDIR", "LD_LIBRARY_PATH", "CARGO_PKG_", "CARGO_MANIFEST_"];

/// The simulated hosts, and the guests that they are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// How many hosts there are in all.
    pub hosts: u32,
    /// 1: all hosts are in it; otherwise there is one guest for each host.
    pub guests: u32,
}

/// What runs in a guest.
#[derive(Debug)]
pub enum Work {
    /// A program with its arguments.
    Command(Vec<String>),
    /// The user's shell, on a terminal of this size: the words that set it with `stty`.
    Shell(String),
}

/// What all guests get.
pub(crate) struct Task {
    pub(crate) layout: Layout,
    pub(crate) work: Work,
    /// Where the work starts.
    pub(crate) folder: String,
    /// The folder that guests share with this machine.
    pub(crate) out: String,
    /// The environment of the work, but for what says where it is.
    pub(crate) environment: Vec<(String, String)>,
}

/// The RDMA device of a host, by its number.
fn device(host: u32) -> String {
    format!("rxe{host}")
}

/// The address of a host, by its number.
fn address(host: u32) -> String {
    format!("10.77.0.{}", host + 1)
}

/// The address of a host's network interface, by its number.
pub(crate) fn hardware_address(host: u32) -> String {
    format!("02:00:0a:4d:00:{:02x}", host + 1)
}

impl Layout {
    /// The numbers of the hosts in a guest.
    fn hosts_in(self, guest: u32) -> std::ops::Range<u32> {
        if self.guests == 1 { 0..self.hosts } else { guest..guest + 1 }
    }

    /// All hosts, as their devices and addresses.
    fn all(self) -> String {
        let hosts = (0..self.hosts).map(|host| format!("{},{}", device(host), address(host)));
        hosts.collect::<Vec<_>>().join(";")
    }

    /// The commands that make the network of a guest, and the RDMA devices on it. All hosts of a
    /// guest are in its first network namespace, the only one that `rdma_rxe` listens in, so the
    /// kernel must be told that what comes over a cable from an address of its own is right.
    fn network(self, guest: u32) -> Vec<String> {
        let mut lines = vec![
            "set_to 0 /proc/sys/net/ipv4/conf/all/rp_filter".to_owned(),
            format!("set_to {BACKLOG} /proc/sys/net/core/netdev_max_backlog"),
        ];
        lines.extend(match (self.guests, self.hosts) {
            (1, 1) => vec!["run ip link add h0 type dummy".to_owned()],
            (1, 2) => vec!["run ip link add h0 type veth peer name h1".to_owned()],
            (1, hosts) => bridge(hosts),
            _ => vec![format!("run ip link set eth0 name h{guest}")],
        });
        for host in self.hosts_in(guest) {
            let (own, settings) = (address(host), format!("/proc/sys/net/ipv4/conf/h{host}"));
            lines.extend([
                format!("set_to 1 {settings}/accept_local"),
                format!("set_to 0 {settings}/rp_filter"),
                format!("set_to 1 {settings}/arp_ignore"),
                format!("set_to 2 {settings}/arp_announce"),
                format!("run ip link set h{host} address {} up", hardware_address(host)),
                format!("run ip address add {own}/24 dev h{host}"),
            ]);
            // Static, since nothing answers for the addresses of this guest.
            lines.extend((0..self.hosts).filter(|other| *other != host).map(|other| {
                let (to, by) = (address(other), hardware_address(other));
                format!("run ip neighbour replace {to} lladdr {by} dev h{host} nud permanent")
            }));
            lines.push(format!("run rdma link add {} type rxe netdev h{host}", device(host)));
        }
        lines
    }
}

fn bridge(hosts: u32) -> Vec<String> {
    let cable = |host| {
        [
            format!("run ip link add h{host} type veth peer name port{host}"),
            format!("run ip link set port{host} master bridge up"),
        ]
    };
    let made = ["run ip link add bridge type bridge", "run ip link set bridge up"];
    made.map(str::to_owned).into_iter().chain((0..hosts).flat_map(cable)).collect()
}

impl Task {
    /// The files that a guest's kernel starts from.
    pub(crate) fn archive(&self, guest: u32, kernel: &Kernel, packages: &Path) -> Result<Vec<u8>> {
        let busybox = packages.join("usr/bin/busybox");
        let busybox = fs::read(&busybox)
            .with_context(|| format!("cannot read {}: remove the cache", busybox.display()))?;
        let mut archive = Archive::default();
        let mounted = ["proc", "sys", "dev", "root", "machine", "packages", "fresh"];
        for folder in mounted.into_iter().chain(["bin", "gossamer"]) {
            archive.folder(folder)?;
        }
        archive.file("init", include_bytes!("init.sh"))?;
        archive.file("bin/busybox", &busybox)?;
        let network = self.layout.network(guest).join("\n") + "\n";
        for (name, script) in [
            ("guest.sh", include_str!("guest.sh")),
            ("settings", &self.settings(guest)),
            ("network", &network),
            ("environment", &self.environment(guest)),
            ("command", &self.command()),
        ] {
            archive.file(&format!("gossamer/{name}"), script.as_bytes())?;
        }
        kernel.add_modules(&mut archive)?;
        archive.finish()
    }

    /// What the scripts of a guest need to know.
    fn settings(&self, guest: u32) -> String {
        let devices: Vec<_> = self.layout.hosts_in(guest).map(device).collect();
        let terminal = match &self.work {
            Work::Command(_) => "",
            Work::Shell(size) => size,
        };
        let settings = [
            ("GUEST", guest.to_string()),
            ("DEVICES", devices.join(" ")),
            ("HUGE_PAGES", HUGE_PAGES.to_string()),
            ("OUT", self.out.clone()),
            ("FOLDER", self.folder.clone()),
            ("TERMINAL", terminal.to_owned()),
        ];
        settings.map(|(name, value)| format!("{name}={}\n", quote(&value))).concat()
    }

    /// The environment of the work, with what says where it is.
    fn environment(&self, guest: u32) -> String {
        let own = [
            ("GOSSAMER_RDMA_HOSTS", self.layout.all()),
            ("GOSSAMER_VM_GUEST", guest.to_string()),
            ("GOSSAMER_VM_GUESTS", self.layout.guests.to_string()),
            ("GOSSAMER_VM_OUT", self.out.clone()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let given = self.environment.iter().filter(|(name, _)| is_for_guests(name));
        let export = |(name, value): &(_, String)| format!("export {name}={}\n", quote(value));
        given.chain(&own).map(export).collect()
    }

    fn command(&self) -> String {
        let words = match &self.work {
            Work::Command(words) => words.iter().map(|word| format!(" {}", quote(word))).collect(),
            Work::Shell(_) => " setsid --ctty --wait \"${SHELL:-/bin/sh}\"".to_owned(),
        };
        format!("set --{words}\n")
    }
}

/// Whether the work gets this variable; a shell cannot set one whose name has other letters.
fn is_for_guests(name: &str) -> bool {
    let is_letter = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
    let is_name =
        name.chars().all(is_letter) && name.starts_with(|first: char| !first.is_ascii_digit());
    let is_it = |other: &&str| name == *other || (other.ends_with('_') && name.starts_with(*other));
    is_name && !NOT_FOR_GUESTS.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn task(hosts: u32, guests: u32, work: Work) -> Task {
        let environment = [
            ("KEPT", "it's $HOME\n`here`"),
            ("TMPDIR", "/far"),
            ("CARGO_PKG_NAME", "xtask"),
            ("not a name", "x"),
        ];
        let environment = environment.map(|(name, value)| (name.into(), value.into()));
        Task {
            layout: Layout { hosts, guests },
            work,
            folder: "/my work".into(),
            out: "/out".into(),
            environment: environment.into(),
        }
    }

    /// What a shell prints that has read a script.
    fn in_shell(script: &str, then: &str) -> String {
        let mut shell = Command::new("sh");
        let output = shell.arg("-c").arg(format!("{script}{then}")).env_clear().output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn one_guest_has_all_hosts_and_two_have_one_each() {
        let lines = |hosts, guests, guest| Layout { hosts, guests }.network(guest).join("\n");
        assert!(lines(1, 1, 0).contains("h0 type dummy"));
        let pair = lines(2, 1, 0);
        assert!(pair.contains("h0 type veth peer name h1"), "{pair}");
        for expected in [
            "set_to 1000000 /proc/sys/net/core/netdev_max_backlog",
            "set_to 1 /proc/sys/net/ipv4/conf/h1/accept_local",
            "run ip link set h1 address 02:00:0a:4d:00:02 up",
            "run ip address add 10.77.0.2/24 dev h1",
            "run ip neighbour replace 10.77.0.1 lladdr 02:00:0a:4d:00:01 dev h1 nud permanent",
            "run rdma link add rxe1 type rxe netdev h1",
        ] {
            assert!(pair.lines().any(|line| line == expected), "{expected} is not in\n{pair}");
        }
        let three = lines(3, 1, 0);
        assert_eq!(three.matches("master bridge").count(), 3);
        assert_eq!(three.matches("ip neighbour").count(), 6);
        let second = lines(2, 2, 1);
        assert!(second.contains("set eth0 name h1") && second.contains("rxe1"), "{second}");
        assert!(!second.contains("rxe0") && second.contains("replace 10.77.0.1"), "{second}");
    }

    #[test]
    fn work_finds_its_environment() {
        let script = task(2, 2, Work::Command(Vec::new())).environment(1);
        assert_eq!(in_shell(&script, "printf %s \"$KEPT\""), "it's $HOME\n`here`");
        let rest = in_shell(
            &script,
            "echo $GOSSAMER_RDMA_HOSTS $GOSSAMER_VM_GUEST of \\\n\
            $GOSSAMER_VM_GUESTS $GOSSAMER_VM_OUT $TMPDIR",
        );
        assert_eq!(rest, "rxe0,10.77.0.1;rxe1,10.77.0.2 1 of 2 /out\n");
    }

    #[test]
    fn a_command_keeps_its_words() {
        let words = ["printf", "<%s>", "a b", "it's", "", "$HOME"];
        let script = task(2, 1, Work::Command(words.map(Into::into).into())).command();
        assert_eq!(in_shell(&script, "\"$@\""), "<a b><it's><><$HOME>");
        let script = task(2, 1, Work::Shell("rows 3 cols 4".into())).command();
        assert_eq!(in_shell(&script, "echo $1 $4"), "setsid /bin/sh\n");
    }

    #[test]
    fn settings_say_what_is_in_this_guest() {
        let show = "echo \"$GUEST:$DEVICES:$FOLDER:$OUT:$TERMINAL\"";
        let settings = task(3, 1, Work::Shell("rows 3 cols 4".into())).settings(0);
        assert_eq!(in_shell(&settings, show), "0:rxe0 rxe1 rxe2:/my work:/out:rows 3 cols 4\n");
        let settings = task(2, 2, Work::Command(Vec::new())).settings(1);
        assert_eq!(in_shell(&settings, show), "1:rxe1:/my work:/out:\n");
    }

    #[test]
    fn scripts_are_ones_that_a_shell_understands() {
        for script in [include_str!("init.sh"), include_str!("guest.sh")] {
            assert_eq!(in_shell("set -n\n", script), "");
        }
    }
}

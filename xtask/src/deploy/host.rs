//! What a deployment does on a host, as scripts for its shell, and what it learns there.
//!
//! ```text
//!   FOLDER/bin/gossamer, gossamerd    sent if their digests differ
//!   FOLDER/identity/                  a key that is made here and stays here; its card
//!   FOLDER/gossamer.toml              the daemon's settings
//!   FOLDER/gossamerd.service          its unit, copied to where systemd looks, if there is systemd
//!   FOLDER/gossamerd.pid, .log        the daemon, if there is none
//!   FOLDER/started                    of what the daemon that runs was started: a digest each
//!   FOLDER/state/                     the daemon's own; programs of jobs are in its store
//! ```
//!
//! Scripts have no single quotes, so that they can be read where they are shown, and begin in the
//! home directory.

use crate::deploy::rack_file::Host;
use std::collections::BTreeMap;

/// Memory that must be available on a host, in KiB.
const MEMORY_KIB: u64 = 256 << 10;

/// Tells what a host is, and what is installed there.
pub(crate) fn look(rack: &str, host: &Host) -> String {
    let folder = &host.folder;
    let runs = runs(rack, host);
    format!(
        r#"echo arch=$(uname -m)
echo user=$(id -u)
echo libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
echo memory=$(grep MemAvailable /proc/meminfo | tr -dc 0-9)
echo rdma=$(ls /sys/class/infiniband 2>/dev/null)
d={folder}; until [ -d $d ]; do d=$(dirname $d); done
echo disk=$(df -Pk $d | tail -n 1 | tr -s " " | cut -d " " -f 4)
cd {folder} 2>/dev/null || exit 0
sum() {{ cat $1 2>/dev/null | sha256sum | cut -c 1-64; }}
for f in bin/gossamer bin/gossamerd identity/card identity/revoked.pem gossamer.toml gossamerd.service; do echo $f=$(sum $f); done
{runs}
runs && echo started=$(cat started 2>/dev/null)
true"#
    )
}

/// The shell function `runs`: whether the daemon of this folder runs.
fn runs(rack: &str, host: &Host) -> String {
    let unit = unit_name(rack);
    let unit_runs = format!("  systemctl --user is-active --quiet {unit} 2>/dev/null && return\n");
    format!(
        r#"runs() {{
{unit_runs}  case $(readlink /proc/$(cat gossamerd.pid 2>/dev/null)/exe) in $(pwd -P)/bin/gossamerd*) return 0;; esac
  return 1
}}"#,
        unit_runs = if host.systemd { &unit_runs } else { "" },
    )
}

/// Puts its input at `name` in the folder, whole or not at all.
pub(crate) fn put(host: &Host, name: &str, mode: &str) -> String {
    let folder = &host.folder;
    let parent = name.rsplit_once('/').map_or(String::new(), |(parent, _)| format!("/{parent}"));
    format!(
        "umask 077 && mkdir -p {folder}{parent} && cd {folder} && cat >{name}.part && \
         chmod {mode} {name}.part && mv {name}.part {name}"
    )
}

/// Prints the request for the host's certificate; makes its key if there is none.
pub(crate) fn ask_to_join(host: &Host) -> String {
    format!("cd {} && bin/gossamer rack join --identity identity", host.folder)
}

/// Puts the card that is its input beside the key.
pub(crate) fn join(host: &Host) -> String {
    format!(
        "cd {} && cat >identity/card.part && bin/gossamer rack join --identity identity --card \
         identity/card.part && mv identity/card.part identity/card",
        host.folder
    )
}

/// (Re)starts the daemon, waits until it listens, and notes of what it was started.
pub(crate) fn start(rack: &str, host: &Host, stamp: &str) -> String {
    let (folder, runs) = (&host.folder, runs(rack, host));
    let detached = format!(
        r#"setsid bin/gossamerd --config gossamer.toml{} </dev/null >gossamerd.log 2>&1 &
echo $! >gossamerd.pid
log="tail -n 20 gossamerd.log""#,
        root_flag(host)
    );
    let launch = if host.systemd {
        let (as_unit, detached) = (indented(&start_unit(rack)), indented(&detached));
        format!(
            "if systemctl --user show-environment >/dev/null 2>&1 && \
             loginctl enable-linger >/dev/null 2>&1; then\n{as_unit}else\n{detached}fi"
        )
    } else {
        detached
    };
    format!(
        r#"cd {folder} || exit 1
{runs}
rm -f started
if [ -e gossamerd.pid ] && runs; then
  kill $(cat gossamerd.pid); n=0
  while runs && [ $n -lt 150 ]; do sleep 0.1; n=$((n + 1)); done
  runs && kill -KILL $(cat gossamerd.pid)
fi
rm -f gossamerd.pid state/address
{launch}
n=0
until [ -e state/address ] || [ $n -ge 300 ]; do
  sleep 0.1; n=$((n + 1)); [ $n -gt 5 ] && ! runs && break
done
if ! [ -e state/address ]; then echo the daemon does not listen: >&2; $log >&2; exit 1; fi
echo {stamp} >started"#
    )
}

/// Makes the daemon a unit of the user's systemd, and starts it as such.
fn start_unit(rack: &str) -> String {
    let unit = unit_name(rack);
    format!(
        r#"mkdir -p ~/.config/systemd/user && cp gossamerd.service ~/.config/systemd/user/{unit} &&
systemctl --user daemon-reload && systemctl --user enable --quiet {unit} &&
systemctl --user restart {unit} || exit 1
log="journalctl --user --unit {unit} --lines 20 --no-pager --output cat""#
    )
}

fn indented(script: &str) -> String {
    script.lines().map(|line| format!("  {line}\n")).collect()
}

/// The settings of the daemon.
pub(crate) fn settings(host: &Host) -> String {
    format!(
        "identity = \"identity\"\nstate = \"state\"\nlisten = \"{}\"\ndata_address = \"{}\"\n",
        host.listens_at(),
        host.address
    )
}

fn unit_name(rack: &str) -> String {
    format!("gossamerd-{rack}.service")
}

/// The unit of the daemon, for the user's own systemd: that of dist/ with other names, without the
/// settings that only a system unit can have.
pub(crate) fn unit(rack: &str, host: &Host) -> String {
    const UNIT: &str = include_str!("../../../dist/gossamerd.service");
    const SYSTEM_ONLY: &str = "\n# Only where this is a unit of the system";
    let service = UNIT.split_once("[Service]\n").map_or("", |(_, service)| service);
    let service = service.split_once(SYSTEM_ONLY).map_or("", |(service, _)| service);
    // A relative folder is one in the home directory, which systemd calls %h.
    let home = if host.folder.starts_with('/') { "" } else { "%h/" };
    let folder = format!("{home}{}", host.folder);
    let start = format!(
        "ExecStart={folder}/bin/gossamerd --config {folder}/gossamer.toml{}",
        root_flag(host)
    );
    let lines = service.lines().map(|line| {
        let line = if line.starts_with("ExecStart=") { &start } else { line };
        format!("{line}\n")
    });
    format!(
        "[Unit]\nDescription=Gossamer: {}, a host of the rack {rack}\n\n\
         [Service]\n{}\n[Install]\nWantedBy=default.target\n",
        host.name,
        lines.collect::<String>()
    )
}

/// What lets the daemon run as root.
fn root_flag(host: &Host) -> &'static str {
    if host.allow_root { " --allow-root" } else { "" }
}

/// What a host has told of itself.
#[derive(Debug, Default)]
pub(crate) struct Facts(BTreeMap<String, String>);

/// What a host must have.
#[derive(Debug, Clone)]
pub(crate) struct Needs {
    /// The processor, as `uname -m` calls it.
    pub(crate) arch: String,
    /// The oldest glibc that has all that the programs use.
    pub(crate) glibc: (u32, u32),
    /// Free room on disk.
    pub(crate) disk_kib: u64,
    /// Whether the daemon may run as root.
    pub(crate) allow_root: bool,
}

impl Facts {
    /// Reads what [`look`] prints.
    pub(crate) fn read(printed: &str) -> Self {
        let pair = |line: &str| {
            line.split_once('=').map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        };
        Self(printed.lines().filter_map(pair).collect())
    }

    /// One fact; empty if the host has not told it.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn kibibytes(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    fn glibc(&self) -> Option<(u32, u32)> {
        version(self.get("libc").strip_prefix("glibc ")?)
    }

    /// Why the programs cannot run there; nothing if they can.
    pub(crate) fn problems(&self, needs: &Needs) -> Vec<String> {
        let mut problems = Vec::new();
        let (arch, wanted) = (self.get("arch"), &needs.arch);
        if arch != wanted {
            problems.push(format!("its processor is {arch:?}, and the programs are for {wanted}"));
        }
        let (major, minor) = needs.glibc;
        if self.glibc().is_none_or(|there| there < needs.glibc) {
            let there = match self.get("libc") {
                "" => "no glibc",
                there => there,
            };
            problems.push(format!("it has {there}, and the programs need glibc {major}.{minor}"));
        }
        for (what, there, wanted) in [
            ("of memory available", self.kibibytes("memory"), MEMORY_KIB),
            ("free on the disk of its folder", self.kibibytes("disk"), needs.disk_kib),
        ] {
            if there < wanted {
                let (there, wanted) = (there >> 10, wanted.div_ceil(1 << 10));
                problems.push(format!("it has {there} MiB {what}, and {wanted} MiB are needed"));
            }
        }
        if self.get("user") == "0" && !needs.allow_root {
            problems.push(
                "ssh leads to root, as whom all jobs would run: use another user, or set \
                 `allow_root = true`"
                    .into(),
            );
        }
        problems
    }

    /// The host in a line.
    pub(crate) fn summary(&self) -> String {
        let rdma = match self.get("rdma") {
            "" => "no RDMA device".to_owned(),
            devices => format!("RDMA devices {devices}"),
        };
        format!(
            "{}, {}, {} MiB of memory available, {} MiB of disk free, {rdma}",
            self.get("arch"),
            self.get("libc"),
            self.kibibytes("memory") >> 10,
            self.kibibytes("disk") >> 10,
        )
    }
}

/// The newest version of glibc that a program asks for, by the versions of the symbols in it.
pub(crate) fn glibc_of(program: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let starts = (0..program.len()).filter(|at| program[*at..].starts_with(MARK));
    let versions = starts.filter_map(|at| {
        let rest = &program[at + MARK.len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        version(std::str::from_utf8(&rest[..end]).ok()?)
    });
    versions.max()
}

/// `2.36`, or `2.3.4` without its last number.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::fs;
    use std::net::{IpAddr, Ipv4Addr};
    use std::process::Command;

    fn host(folder: &str) -> Host {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
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

    const TOLD: &str =
        "arch=x86_64\nuser=1000\nlibc=glibc 2.36\nmemory=400000\nrdma=\ndisk=90000\n";

    fn needs() -> Needs {
        Needs { arch: "x86_64".into(), glibc: (2, 34), disk_kib: 80_000, allow_root: false }
    }

    #[test]
    fn a_host_that_has_what_is_needed() {
        let facts = Facts::read(TOLD);
        assert_eq!(facts.problems(&needs()), Vec::<String>::new());
        assert_eq!(
            facts.summary(),
            "x86_64, glibc 2.36, 390 MiB of memory available, 87 MiB of disk free, no RDMA device"
        );
    }

    #[test]
    fn what_a_host_lacks_is_named() {
        for (told, instead, reason) in [
            ("x86_64", "aarch64", "its processor is \"aarch64\", and the programs are for x86_64"),
            ("glibc 2.36", "glibc 2.9", "it has glibc 2.9, and the programs need glibc 2.34"),
            ("glibc 2.36", "", "it has no glibc"),
            ("400000", "9000", "8 MiB of memory available, and 256 MiB are needed"),
            ("disk=90000", "disk=900", "0 MiB free on the disk of its folder, and 79 MiB are"),
            ("user=1000", "user=0", "ssh leads to root, as whom all jobs would run"),
        ] {
            let problems = Facts::read(&TOLD.replace(told, instead)).problems(&needs());
            assert_eq!(problems.len(), 1, "{instead}: {problems:?}");
            assert!(problems[0].contains(reason), "{instead}: {problems:?}");
        }
        assert_eq!(Facts::read("").problems(&needs()).len(), 4);
        let root = Facts::read(&TOLD.replace("user=1000", "user=0"));
        assert!(root.problems(&Needs { allow_root: true, ..needs() }).is_empty());
    }

    #[test]
    fn the_newest_glibc_counts() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(glibc_of(program), Some((2, 34)));
        assert_eq!(glibc_of(b"nothing"), None);
    }

    #[test]
    fn this_machine_tells_what_it_is_and_what_is_there() {
        let place = env::temp_dir().join(format!("deploy-look-{}", std::process::id()));
        let run = |script: &str| {
            let input = place.with_extension("input");
            fs::write(&input, "settings").unwrap();
            let mut sh = Command::new("sh");
            sh.args(["-c", script]).stdin(fs::File::open(&input).unwrap());
            let output = sh.output().unwrap();
            fs::remove_file(&input).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let host = host(place.to_str().unwrap());
        let facts = Facts::read(&run(&look("lab", &host)));
        assert_eq!(facts.get("arch"), env::consts::ARCH);
        assert!(facts.kibibytes("memory") > 0 && facts.kibibytes("disk") > 0);
        assert_eq!(facts.get("gossamer.toml"), "", "nothing is installed");
        run(&put(&host, "gossamer.toml", "600"));
        let facts = Facts::read(&run(&look("lab", &host)));
        // By sha256sum.
        let digest = "b9ea7c47f5ea9a34cbd0d9b2fa1e2b1ce0ca54d2f0b9cd0e2b1a0ff8d8f5b0a6";
        assert_eq!(facts.get("gossamer.toml").len(), digest.len());
        assert_ne!(facts.get("gossamer.toml"), facts.get("bin/gossamer"), "that is not there");
        assert_eq!(facts.get("started"), "");
        fs::remove_dir_all(&place).unwrap();
    }

    /// The daemon is started as what `starts` says, and noted; `systemctl` and the others are
    /// scripts that say that they were called.
    fn starts_as(starts: &str, stand_ins: &[(&str, &str)]) {
        let place = env::temp_dir().join(format!("deploy-{starts}-{}", std::process::id()));
        let (home, bin) = (place.join("home"), place.join("path"));
        for folder in [&home.join("g/bin"), &home.join("g/state"), &bin] {
            fs::create_dir_all(folder).unwrap();
        }
        let calls = place.join("calls");
        let script = |path: &std::path::Path, body: &str| {
            let text = format!("#!/bin/sh\necho $(basename $0) $* >>{}\n{body}\n", calls.display());
            fs::write(path, text).unwrap();
            Command::new("chmod").arg("755").arg(path).status().unwrap();
        };
        script(&home.join("g/bin/gossamerd"), "touch state/address");
        for (name, body) in stand_ins {
            script(&bin.join(name), body);
        }
        fs::write(home.join("g/gossamerd.service"), "unit").unwrap();
        let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
        let mut sh = Command::new("sh");
        sh.args(["-c", &start("lab", &host("g"), "stamp")]).current_dir(&home);
        let output = sh.env("HOME", &home).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_to_string(home.join("g/started")).unwrap(), "stamp\n");
        let called = fs::read_to_string(&calls).unwrap();
        let is_unit = home.join(".config/systemd/user/gossamerd-lab.service").exists();
        assert_eq!(is_unit, starts == "unit", "{called}");
        assert_eq!(called.contains("systemctl --user restart gossamerd-lab.service"), is_unit);
        assert_eq!(called.contains("gossamerd --config gossamer.toml"), !is_unit, "{called}");
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn the_daemon_is_a_unit_where_systemd_may_keep_it() {
        let systemctl = "case $* in *restart*) touch state/address;; esac";
        starts_as("unit", &[("systemctl", systemctl), ("loginctl", "")]);
        starts_as("detached", &[("systemctl", systemctl), ("loginctl", "exit 1")]);
    }

    #[test]
    fn the_unit_is_hardened_as_that_of_the_system() {
        let unit = unit("lab", &host("g"));
        for line in [
            "Delegate=yes",
            "KillMode=mixed",
            "LimitCORE=0",
            "LimitNOFILE=1048576",
            "NoNewPrivileges=yes",
            "OOMPolicy=continue",
            "TasksMax=65536",
            "WantedBy=default.target",
        ] {
            assert!(unit.lines().any(|other| other == line), "no {line} in {unit}");
        }
        let starts: Vec<_> = unit.lines().filter(|line| line.starts_with("ExecStart=")).collect();
        assert_eq!(starts, ["ExecStart=%h/g/bin/gossamerd --config %h/g/gossamer.toml"]);
        for word in ["User=", "StateDirectory", "multi-user", "PrivateTmp", "--allow-root"] {
            assert!(!unit.contains(word), "{word} in {unit}");
        }
        let root = Host { allow_root: true, ..host("g") };
        for text in [super::unit("lab", &root), start("lab", &root, "0")] {
            assert!(text.contains("gossamer.toml --allow-root"), "{text}");
        }
    }

    #[test]
    fn scripts_can_be_quoted() {
        let host = host("/srv/g");
        let without = Host { systemd: false, ..self::tests::host("/srv/g") };
        let start_without = start("lab", &without, "0");
        assert!(!start_without.contains("systemctl") && start_without.contains("setsid"));
        for script in [
            start_without,
            look("lab", &host),
            put(&host, "bin/gossamer", "755"),
            ask_to_join(&host),
            join(&host),
            start("lab", &host, "0-1-2"),
        ] {
            assert!(!script.contains('\''), "{script}");
            let check = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
            assert!(check.success(), "{script}");
        }
        assert!(
            unit("lab", &self::host("g")).contains("ExecStart=%h/g/bin/gossamerd --config %h/g/")
        );
        assert!(unit("lab", &host).contains("ExecStart=/srv/g/bin/gossamerd --config /srv/g/"));
    }
}

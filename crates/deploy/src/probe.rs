//! What a deployment learns of a host before it changes anything: a script that reports facts, and
//! the requirements that these must meet.

use std::collections::BTreeMap;

use crate::rack_file::Host;
use crate::scripts::runs;

/// Memory that must be available on a host, in KiB.
const MEMORY_KIB: u64 = 256 << 10;

/// The script that reports what a host is and what is installed there.
pub(crate) fn probe(rack: &str, host: &Host) -> String {
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
for f in bin/gossamer bin/gossamerd identity/card identity/revoked.pem identity/signers.pem gossamer.toml gossamerd.service; do echo $f=$(sum $f); done
{runs}
runs && echo started=$(cat started 2>/dev/null)
true"#
    )
}

/// What a host reported.
#[derive(Debug, Default)]
pub(crate) struct Facts(BTreeMap<String, String>);

/// What the programs require of a host.
#[derive(Debug, Clone)]
pub(crate) struct Requirements {
    /// The processor, as `uname -m` calls it.
    pub(crate) arch: String,
    /// The oldest glibc with all symbols that the programs use.
    pub(crate) glibc: (u32, u32),
    /// Free space on disk.
    pub(crate) disk_kib: u64,
    /// Whether the daemon may run as root.
    pub(crate) allow_root: bool,
}

impl Facts {
    /// Reads what [`probe`] prints.
    pub(crate) fn read(printed: &str) -> Self {
        let pair = |line: &str| {
            let (name, value) = line.split_once('=')?;
            // Printed on the user's terminal, which a host must not control.
            let value: String = value.trim().chars().filter(|c| !c.is_control()).collect();
            Some((name.to_owned(), value))
        };
        Self(printed.lines().filter_map(pair).collect())
    }

    /// One fact; empty if the host did not report it.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn kibibytes(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    fn glibc(&self) -> Option<(u32, u32)> {
        version(self.get("libc").strip_prefix("glibc ")?)
    }

    /// The requirements that the host does not meet.
    pub(crate) fn unmet(&self, required: &Requirements) -> Vec<String> {
        let mut problems = Vec::new();
        let (arch, wanted) = (self.get("arch"), &required.arch);
        if arch != wanted {
            problems.push(format!(
                "processor {arch:?}, expected {wanted}, for which the programs are built"
            ));
        }
        let (major, minor) = required.glibc;
        if self.glibc().is_none_or(|there| there < required.glibc) {
            let there = match self.get("libc") {
                "" => "no glibc",
                there => there,
            };
            problems.push(format!("{there}, expected glibc {major}.{minor} or newer"));
        }
        for (what, there, wanted) in [
            ("of memory available", self.kibibytes("memory"), MEMORY_KIB),
            ("free on the disk of its folder", self.kibibytes("disk"), required.disk_kib),
        ] {
            if there < wanted {
                let (there, wanted) = (there >> 10, wanted.div_ceil(1 << 10));
                problems.push(format!("{there} MiB {what}, expected at least {wanted} MiB"));
            }
        }
        if self.get("user") == "0" && !required.allow_root {
            problems.push(
                "ssh logs in as root, and all jobs would run as root: use another user, or set \
                 `allow_root = true`"
                    .into(),
            );
        }
        problems
    }

    /// The host, in one line.
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

/// The newest version of glibc that a program requires, by the versions of its symbols.
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
    use std::process::Command;
    use std::{env, fs};

    use super::*;
    use crate::rack_file::host;
    use crate::scripts::put;

    const REPORT: &str =
        "arch=x86_64\nuser=1000\nlibc=glibc 2.36\nmemory=400000\nrdma=\ndisk=90000\n";

    fn required() -> Requirements {
        Requirements { arch: "x86_64".into(), glibc: (2, 34), disk_kib: 80_000, allow_root: false }
    }

    #[test]
    fn a_host_may_meet_all_requirements() {
        let facts = Facts::read(REPORT);
        assert_eq!(facts.unmet(&required()), Vec::<String>::new());
        assert_eq!(
            facts.summary(),
            "x86_64, glibc 2.36, 390 MiB of memory available, 87 MiB of disk free, no RDMA device"
        );
    }

    #[test]
    fn control_characters_of_a_host_are_dropped() {
        let facts = Facts::read("arch=x86\x1b[2J_64\nrdma=\x07mlx5_0\n");
        assert_eq!((facts.get("arch"), facts.get("rdma")), ("x86[2J_64", "mlx5_0"));
    }

    #[test]
    fn unmet_requirements_are_named() {
        for (reported, instead, reason) in [
            ("x86_64", "aarch64", "processor \"aarch64\", expected x86_64"),
            ("glibc 2.36", "glibc 2.9", "glibc 2.9, expected glibc 2.34 or newer"),
            ("glibc 2.36", "", "no glibc, expected"),
            ("400000", "9000", "8 MiB of memory available, expected at least 256 MiB"),
            (
                "disk=90000",
                "disk=900",
                "0 MiB free on the disk of its folder, expected at least 79 MiB",
            ),
            ("user=1000", "user=0", "ssh logs in as root, and all jobs would run as root"),
        ] {
            let unmet = Facts::read(&REPORT.replace(reported, instead)).unmet(&required());
            assert_eq!(unmet.len(), 1, "{instead}: {unmet:?}");
            assert!(unmet[0].contains(reason), "{instead}: {unmet:?}");
        }
        assert_eq!(Facts::read("").unmet(&required()).len(), 4);
        let root = Facts::read(&REPORT.replace("user=1000", "user=0"));
        assert!(root.unmet(&Requirements { allow_root: true, ..required() }).is_empty());
    }

    #[test]
    fn the_newest_glibc_counts() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(glibc_of(program), Some((2, 34)));
        assert_eq!(glibc_of(b"nothing"), None);
    }

    #[test]
    fn this_machine_reports_what_it_is_and_what_is_installed() {
        let place = env::temp_dir().join(format!("deploy-probe-{}", std::process::id()));
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
        let facts = Facts::read(&run(&probe("lab", &host)));
        assert_eq!(facts.get("arch"), env::consts::ARCH);
        assert!(facts.kibibytes("memory") > 0 && facts.kibibytes("disk") > 0);
        assert_eq!(facts.get("gossamer.toml"), "", "nothing is installed");
        let printed = run("sha256sum");
        let (digest, _) = printed.split_at(64);
        run(&put(&host, "gossamer.toml", "600", digest));
        let facts = Facts::read(&run(&probe("lab", &host)));
        assert_eq!(facts.get("gossamer.toml"), digest);
        assert_ne!(facts.get("gossamer.toml"), facts.get("bin/gossamer"), "that is not there");
        assert_eq!(facts.get("started"), "");
        fs::remove_dir_all(&place).unwrap();
    }
}

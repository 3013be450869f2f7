//! What a guest needs beyond the files of this machine, out of Debian's packages: QEMU, and the
//! libraries and tools of RDMA. They are downloaded and unpacked; nothing is installed, and no list
//! or cache of this machine's apt changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::apt::{self, Apt, run};

/// Downloaded even where this machine has them installed, so that versions agree with each other.
/// What these depend on is downloaded only where it is missing.
const PACKAGES: [&str; 13] = [
    "qemu-system-x86",
    "qemu-system-common",
    "qemu-system-data",
    "seabios",
    "busybox-static",
    "iproute2",
    "libibverbs1",
    "ibverbs-providers",
    "librdmacm1",
    "ibverbs-utils",
    "perftest",
    "libibumad3",
    "rdmacm-utils",
];
/// Counted up when the way of unpacking changes, so that older folders are made again.
const RECIPE: u32 = 1;
/// The programs of this machine that are needed, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("dpkg-deb", "dpkg"),
    ("setpriv", "util-linux"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Checks that this machine can run guests.
///
/// # Errors
/// If it is not Linux on x86-64, or lacks a program; the error names what to install.
pub fn check() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "guests need Linux on x86-64, got another system"
    );
    apt::check(&PROGRAMS)
}

/// The folder with the unpacked packages; makes it unless it is in `cache`.
pub(crate) fn ready(cache: &Path, apt: &Apt) -> Result<PathBuf> {
    let root = cache.join("root");
    let stamp = root.join("stamp");
    let wanted = format!("{RECIPE} {}", PACKAGES.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(root);
    }
    apt.update()?;
    apt.unpack_programs(&apt.with_missing(&PACKAGES)?, &root)?;
    let mut version = qemu(&root);
    run(version.arg("--version"), &[]).context(
        "the downloaded QEMU does not run on this machine: its libraries do not fit this system",
    )?;
    fs::write(stamp, wanted)?;
    Ok(root)
}

/// The QEMU of the unpacked packages, with its libraries and data.
pub(crate) fn qemu(root: &Path) -> Command {
    // The kernel kills it when this process ends, however that happens.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(root.join("usr/bin/qemu-system-x86_64"));
    for data in ["usr/share/seabios", "usr/share/qemu"] {
        command.arg("-L").arg(root.join(data));
    }
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    command
}

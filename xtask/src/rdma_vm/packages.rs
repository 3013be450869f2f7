//! What a guest needs beyond this machine, out of Debian's packages: QEMU, and the libraries and
//! tools of RDMA. They are downloaded and unpacked into a folder of the build output; nothing is
//! installed, and no list or cache of this machine's apt changes.

use crate::apt::{self, Apt, run};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
/// Where folders of the root are links into `usr`, as on every Debian since 2023.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Fails if this machine has not got what is needed, and says what is missing.
pub(crate) fn check() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "guests run Debian's kernel for x86-64, on Linux on x86-64; this machine is another"
    );
    apt::check(&PROGRAMS)
}

/// The folder with the unpacked packages, which is made unless it is in `cache` already.
pub(super) fn ready(cache: &Path, apt: &Apt) -> Result<PathBuf> {
    let root = cache.join("root");
    let stamp = root.join("stamp");
    let wanted = format!("{RECIPE} {}", PACKAGES.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(root);
    }
    apt.update()?;
    apt.unpack(&apt.with_missing(&PACKAGES)?, &root)?;
    MERGED.iter().try_for_each(|name| merge(&root.join(name), &root.join("usr").join(name)))?;
    let mut version = qemu(&root);
    run(version.arg("--version"), &[]).context(
        "the QEMU that was downloaded does not run here; its libraries do not fit this system",
    )?;
    fs::write(stamp, wanted)?;
    Ok(root)
}

/// Moves what is in `from` into `to`. Into a guest, the folders of the root come as links.
fn merge(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() || from.is_symlink() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            merge(&entry.path(), &place)?;
        } else {
            fs::rename(entry.path(), place)?;
        }
    }
    fs::remove_dir(from).with_context(|| format!("cannot remove {}", from.display()))
}

/// The QEMU of the unpacked packages, with its libraries and data.
pub(super) fn qemu(root: &Path) -> Command {
    // It is killed when this process is, whatever ends it.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(root.join("usr/bin/qemu-system-x86_64"));
    for data in ["usr/share/seabios", "usr/share/qemu"] {
        command.arg("-L").arg(root.join(data));
    }
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    command
}

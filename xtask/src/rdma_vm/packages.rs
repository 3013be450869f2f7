//! What a guest needs beyond this machine, out of Debian's packages: QEMU, and the libraries and
//! tools of RDMA. They are downloaded and unpacked into a folder of the build output; nothing is
//! installed, and no list or cache of this machine's apt changes.

use anyhow::{Context, Result, bail, ensure};
use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, iter, thread};

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
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    bail!(
        "{} are missing: this needs Debian 12 or newer (apt-get install {})",
        names.join(", "),
        packages.join(" ")
    )
}

fn is_there(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|folder| folder.join(program).exists())
}

/// This machine's apt, with lists and a cache of its own.
pub(super) struct Apt {
    place: PathBuf,
    is_up_to_date: Cell<bool>,
}

impl Apt {
    /// Its files are in `cache`.
    pub(super) fn new(cache: &Path) -> Self {
        Self { place: cache.join("apt"), is_up_to_date: Cell::new(false) }
    }

    /// Reads what packages there are, from the sources that this machine's apt knows; once.
    pub(super) fn update(&self) -> Result<()> {
        if self.is_up_to_date.get() {
            return Ok(());
        }
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.place.join(folder))?;
        }
        fs::write(self.place.join("apt.conf"), settings(&self.place))?;
        eprintln!("rdma-vm: reading the lists of Debian's packages");
        self.said(&mut self.command("apt-get", &["update"]))
            .context("cannot read the lists of Debian's packages")?;
        self.is_up_to_date.set(true);
        Ok(())
    }

    /// What `package` depends on, directly.
    pub(super) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let said = self.said(&mut self.command("apt-cache", &["depends", package]))?;
        Ok(dependencies_in(&said))
    }

    /// `packages` and those of what they depend on that this machine has not got.
    fn with_missing(&self, packages: &[&str]) -> Result<Vec<String>> {
        let install = ["install", "--simulate", "--no-install-recommends"];
        let said = self.said(self.command("apt-get", &install).args(packages)).context(
            "Debian's packages are not to be had; is there a network, and is Debian among apt's \
             sources?",
        )?;
        let mut all: Vec<String> = packages.iter().map(|name| (*name).to_owned()).collect();
        all.extend(installed_in(&said));
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// Downloads `packages` and unpacks them into `folder`.
    pub(super) fn unpack(&self, packages: &[String], folder: &Path) -> Result<()> {
        eprintln!("rdma-vm: downloading {}", packages.join(" "));
        let archives = folder.with_extension("debs");
        make_empty(&archives)?;
        make_empty(folder)?;
        let mut download = self.command("apt-get", &["download"]);
        self.said(download.args(packages).current_dir(&archives))
            .context("cannot download Debian's packages")?;
        for archive in fs::read_dir(&archives)? {
            let mut unpack = Command::new("dpkg-deb");
            self.said(unpack.arg("--extract").arg(archive?.path()).arg(folder))?;
        }
        fs::remove_dir_all(&archives)?;
        Ok(())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("APT_CONFIG", self.place.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    /// Runs a program without input; what it wrote to standard output.
    fn said(&self, command: &mut Command) -> Result<String> {
        run(command, &[]).map(|said| String::from_utf8_lossy(&said).into_owned())
    }
}

/// Settings of an apt whose files are in `place`, which it uses as whoever started it.
fn settings(place: &Path) -> String {
    let place = place.display();
    format!(
        "Dir::State::Lists \"{place}/lists\";\nDir::Cache \"{place}/cache\";\n\
         APT::Sandbox::User \"root\";\nAcquire::Retries \"3\";\n\
         Acquire::http::Timeout \"30\";\n"
    )
}

/// Runs a program with `input` for its standard input; what it wrote to standard output. An error
/// has what it wrote to standard error.
pub(super) fn run(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let words = iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut stdin = child.stdin.take().expect("standard input was asked to be piped");
    // Written beside the reading: a program that has not read all may wait for us to read.
    let output = thread::scope(|scope| {
        // One that does not want to read all says why when it ends.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output()
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{shown}` failed: {}\n{}", output.status, said.trim());
    Ok(output.stdout)
}

/// Makes `folder`, without anything that was in it.
pub(super) fn make_empty(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(folder),
    }
    .with_context(|| format!("cannot make the folder {}", folder.display()))
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

/// The packages in what `apt-cache depends` prints.
fn dependencies_in(said: &str) -> Vec<String> {
    let names = said.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::to_owned).collect()
}

/// The packages in what `apt-get install --simulate` prints.
fn installed_in(said: &str) -> Vec<String> {
    let names = said.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_is_understood() {
        let said = "linux-image-amd64\n  Depends: linux-image-6.1.0-42-amd64\n  Suggests: grub\n";
        assert_eq!(dependencies_in(said), ["linux-image-6.1.0-42-amd64"]);
        let said = "Reading package lists...\nInst perftest (4.5 Debian:12 [amd64])\n\
                    Inst seabios [1.0] (1.1 Debian:12 [all])\nConf perftest (4.5)\n";
        assert_eq!(installed_in(said), ["perftest", "seabios"]);
    }

    #[test]
    fn a_program_gets_its_input_and_says_why_it_fails() {
        let much = vec![b'a'; 1 << 20];
        assert_eq!(run(&mut Command::new("cat"), &much).unwrap(), much);
        let mut command = Command::new("sh");
        let error = run(command.args(["-c", "echo no good >&2; exit 3"]), &much).unwrap_err();
        assert!(error.to_string().ends_with("exit status: 3\nno good"), "{error}");
    }
}

//! [`Apt`]: Debian's packages without installing any. It downloads them with this machine's apt, but
//! with lists and a cache of its own, and unpacks them into a folder; no list or cache of this
//! machine's apt changes.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, iter, thread};

use anyhow::{Context, Result, bail, ensure};

/// Folders of the root that are links into `usr`, on every Debian since 2023, but not in all of its packages.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Checks that this machine has these programs, each given with the Debian package that has it.
///
/// # Errors
/// If one is missing; the error names the packages to install.
pub fn check(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = programs.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    bail!(
        "missing programs: {}; Debian 12 or newer has them (apt-get install {})",
        names.join(", "),
        packages.join(" ")
    )
}

fn is_there(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|folder| folder.join(program).exists())
}

/// This machine's apt, with lists and a cache of its own.
#[derive(Debug)]
pub struct Apt {
    /// The command that uses it, for messages.
    command: &'static str,
    folder: PathBuf,
    /// Debian's names of the processors whose packages it lists, this machine's first.
    architectures: &'static [&'static str],
    is_up_to_date: Cell<bool>,
}

impl Apt {
    /// For `command`, with its files in `cache`.
    pub fn new(
        command: &'static str,
        cache: &Path,
        architectures: &'static [&'static str],
    ) -> Self {
        let folder = cache.join("apt");
        Self { command, folder, architectures, is_up_to_date: Cell::new(false) }
    }

    /// Downloads the lists of packages, from the sources of this machine's apt; once.
    ///
    /// # Errors
    /// If they cannot be downloaded.
    pub fn update(&self) -> Result<()> {
        if self.is_up_to_date.get() {
            return Ok(());
        }
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        fs::write(self.folder.join("apt.conf"), settings(&self.folder, self.architectures))?;
        eprintln!("{}: reading the lists of Debian's packages", self.command);
        self.output(&mut self.command_of("apt-get", &["update"]))
            .context("cannot read the lists of Debian's packages")?;
        self.is_up_to_date.set(true);
        Ok(())
    }

    /// The direct dependencies of `package`.
    ///
    /// # Errors
    /// If there is no such package.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let printed = self.output(&mut self.command_of("apt-cache", &["depends", package]))?;
        Ok(dependencies_in(&printed))
    }

    /// `packages`, and those of their dependencies that this machine lacks.
    ///
    /// # Errors
    /// If one is in none of apt's sources.
    pub fn with_missing(&self, packages: &[&str]) -> Result<Vec<String>> {
        let install = ["install", "--simulate", "--no-install-recommends"];
        let printed = self.output(self.command_of("apt-get", &install).args(packages)).context(
            "cannot find Debian's packages: check the network, and that Debian is among apt's \
             sources",
        )?;
        let mut all: Vec<String> = packages.iter().map(|name| (*name).to_owned()).collect();
        all.extend(installed_in(&printed));
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// Downloads `packages` and unpacks them into `folder`, which is emptied.
    ///
    /// # Errors
    /// If they cannot be downloaded or unpacked.
    pub fn unpack(&self, packages: &[String], folder: &Path) -> Result<()> {
        eprintln!("{}: downloading {}", self.command, packages.join(" "));
        let archives = folder.with_extension("debs");
        make_empty(&archives)?;
        make_empty(folder)?;
        let mut download = self.command_of("apt-get", &["download"]);
        self.output(download.args(packages).current_dir(&archives))
            .context("cannot download Debian's packages")?;
        for archive in fs::read_dir(&archives)? {
            let mut unpack = Command::new("dpkg-deb");
            self.output(unpack.arg("--extract").arg(archive?.path()).arg(folder))?;
        }
        fs::remove_dir_all(&archives)?;
        Ok(())
    }

    /// As [`unpack`](Self::unpack), with the folders of the root in `usr`: so programs find all of their
    /// libraries in one folder.
    ///
    /// # Errors
    /// As `unpack`, and if files cannot be moved.
    pub fn unpack_programs(&self, packages: &[String], folder: &Path) -> Result<()> {
        self.unpack(packages, folder)?;
        MERGED.iter().try_for_each(|name| merge(&folder.join(name), &folder.join("usr").join(name)))
    }

    fn command_of(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    /// Runs a program without input; returns its standard output.
    fn output(&self, command: &mut Command) -> Result<String> {
        run(command, &[]).map(|output| String::from_utf8_lossy(&output).into_owned())
    }
}

/// Moves what is in `from` into `to`.
fn merge(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() || from.is_symlink() {
        return Ok(());
    }
    let entries =
        fs::create_dir_all(to).and_then(|()| fs::read_dir(from)?.collect::<io::Result<Vec<_>>>());
    let moved = || format!("cannot move {} to {}", from.display(), to.display());
    for entry in entries.with_context(moved)? {
        let target = to.join(entry.file_name());
        if entry.file_type().with_context(moved)?.is_dir() {
            merge(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), target).with_context(moved)?;
        }
    }
    fs::remove_dir(from).with_context(|| format!("cannot remove {}", from.display()))
}

/// Settings of an apt whose files are in `folder`, and which keeps the user that started it.
fn settings(folder: &Path, architectures: &[&str]) -> String {
    let known: String = architectures.iter().map(|name| format!(" \"{name}\";")).collect();
    let folder = folder.display();
    format!(
        "Dir::State::Lists \"{folder}/lists\";\nDir::Cache \"{folder}/cache\";\n\
         APT::Sandbox::User \"root\";\nAcquire::Retries \"3\";\n\
         Acquire::http::Timeout \"30\";\nAPT::Architectures {{{known} }};\n"
    )
}

/// Runs a program with `input` as its standard input; returns its standard output.
///
/// # Errors
/// If it cannot be started or fails; the error has its standard error.
pub fn run(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let words = iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut stdin = child.stdin.take().expect("standard input was asked to be piped");
    // Written while reading: the program may wait for its output to be read before it reads more.
    let output = thread::scope(|scope| {
        // A program that does not read all of it reports why when it ends.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output()
    })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{shown}` failed: {}\n{}", output.status, errors.trim());
    Ok(output.stdout)
}

/// Makes `folder`, and empties it if it exists.
///
/// # Errors
/// If it cannot be removed or made.
pub fn make_empty(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(folder),
    }
    .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// The packages in what `apt-cache depends` prints.
fn dependencies_in(printed: &str) -> Vec<String> {
    let names = printed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::to_owned).collect()
}

/// The packages in what `apt-get install --simulate` prints.
fn installed_in(printed: &str) -> Vec<String> {
    let names = printed.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_is_understood() {
        let printed =
            "linux-image-amd64\n  Depends: linux-image-6.1.0-42-amd64\n  Suggests: grub\n";
        assert_eq!(dependencies_in(printed), ["linux-image-6.1.0-42-amd64"]);
        let printed = "Reading package lists...\nInst perftest (4.5 Debian:12 [amd64])\n\
                    Inst seabios [1.0] (1.1 Debian:12 [all])\nConf perftest (4.5)\n";
        assert_eq!(installed_in(printed), ["perftest", "seabios"]);
    }

    #[test]
    fn folders_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["lib", "usr/lib"].map(|name| folder.path().join(name));
        for file in ["lib/x/a", "usr/lib/x/b"] {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        merge(&from, &to).unwrap();
        assert!(to.join("x/a").is_file() && to.join("x/b").is_file() && !from.exists());
        merge(&from, &to).unwrap();
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

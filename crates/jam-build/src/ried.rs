//! Builds a ried: has cargo build its crate as a shared library, and checks what came of it.
//!
//! A cargo inside of a build script must not wait for the one outside: it has a folder of its own for
//! what it builds, and none of the settings that the outer one makes for its own crates. It asks for
//! nothing from the network if what it needs is there.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use jam_format::{Library, Machine};

use crate::compile::{Compilers, is_there, read, run};
use crate::depfile;
use crate::error::Error;
use crate::library::Interface;

/// What a ried may not depend on: crates of which a process has one, with state.
const OF_PROGRAM: &[&str] = &[
    "gossamer-fiber",
    "gossamer-jam",
    "gossamer-job",
    "gossamer-mailbox",
    "gossamer-progress",
    "gossamer-rack",
    "gossamer-segment",
    "gossamer-trust-core",
];

/// Variables of the outer cargo, or of its user for it, that change how a crate is built.
const OUTER: &[&str] = &[
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_TARGET_DIR",
    "CLIPPY_ARGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
];

/// A ried that has been built.
#[derive(Clone, Debug)]
pub struct BuiltRied {
    /// Its name.
    pub name: String,
    /// The machine that it is for.
    pub machine: Machine,
    /// Its shared library.
    pub library: Vec<u8>,
    /// What it offers and needs.
    pub interface: Interface,
    /// What it is built from on this machine: its folder, those of path dependencies, and the files that the
    /// compilers have read.
    pub sources: Vec<PathBuf>,
}

/// Whether a folder is that of a ried.
pub(crate) fn is_ried(folder: &Path) -> bool {
    folder.join("Cargo.toml").is_file()
}

impl Compilers {
    /// Builds the ried in `folder`, whose name is its own. Messages name it as `shown` does.
    pub(crate) fn ried(&self, folder: &Path, shown: &Path) -> Result<BuiltRied, Error> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = shown.join("Cargo.toml").to_string_lossy().into_owned();
        self.check_linker(&manifest)?;
        let (mut sources, is_offline) = self.check_crates(&name, folder, &manifest)?;
        let target_dir = self.rieds();
        let file = format!("lib{}.so", name.replace('-', "_"));
        let library = target_dir.join(&self.target).join("release").join(file);
        // One that an earlier build has left under this name, which would be taken for this one's.
        match fs::remove_file(&library) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", library)(error));
            }
            _ => {}
        }
        let mut cargo = self.cargo(folder, "rustc", is_offline);
        cargo.args(["--lib", "--crate-type", "cdylib", "--release"]);
        // A panic ends at the border of the ried, which needs unwinding; the bytes travel.
        cargo.args(["--config", "profile.release.panic=\"unwind\""]);
        cargo.args(["--config", "profile.release.strip=\"symbols\""]);
        // For the linker, which names lines; then they are stripped.
        cargo.args(["--config", "profile.release.debug=\"line-tables-only\""]);
        cargo.arg("--target-dir").arg(&target_dir);
        // Panics name the file as its author knows it.
        let shown = shown.join("src");
        cargo.args(["--", &format!("--remap-path-prefix=src={}", shown.display())]);
        // What nothing defines is found here, with its line, and not by a receiver's loader.
        cargo.arg("-Clink-arg=-Wl,--no-undefined");
        run(cargo, &manifest).map_err(|error| self.or_no_library(error))?;
        let bytes = read(&library)?;
        let wrong = |message: String| Error::Ried { ried: name.clone(), message };
        let parsed = Library::parse(&bytes).map_err(|error| wrong(error.to_string()))?;
        if parsed.machine() != self.machine {
            return Err(wrong(format!(
                "built for {}, expected {}",
                parsed.machine(),
                self.machine
            )));
        }
        let interface = Interface::of(&name, &bytes)?;
        interface.check(&name)?;
        sources.extend(depfile::files_read(&library.with_extension("d"), &self.work)?);
        Ok(BuiltRied { name, machine: self.machine, library: bytes, interface, sources })
    }

    /// The folder for what cargo makes.
    fn rieds(&self) -> PathBuf {
        self.work.join("rieds")
    }

    /// The variable that tells cargo the linker, and the linker where that says nothing.
    fn linker(&self) -> (String, Option<String>) {
        let target = self.target.to_uppercase().replace('-', "_");
        let variable = format!("CARGO_TARGET_{target}_LINKER");
        let is_own = Machine::CURRENT == Some(self.machine);
        let linker = (!is_own && env::var_os(&variable).is_none()).then(|| self.cross_gcc());
        (variable, linker)
    }

    /// Checks that a ried for another machine can be linked: the linker that rustc has needs the C
    /// library of that machine, which comes with its gcc.
    fn check_linker(&self, manifest: &str) -> Result<(), Error> {
        match self.linker() {
            (variable, Some(linker)) if !is_there(&linker) => Err(Error::NoCompiler {
                machine: self.machine,
                file: manifest.to_owned(),
                expected: format!("{linker}, or a linker that {variable} names"),
            }),
            _ => Ok(()),
        }
    }

    /// Checks which crates a ried consists of, before they are built: their folders, and whether cargo
    /// needs no network.
    fn check_crates(
        &self,
        name: &str,
        folder: &Path,
        manifest: &str,
    ) -> Result<(Vec<PathBuf>, bool), Error> {
        let tree = |edges, is_offline| {
            let mut cargo = self.cargo(folder, "tree", is_offline);
            cargo.args(["--edges", edges, "--prefix", "depth", "--format", "{p}"]);
            run(cargo, manifest)
        };
        // What runs while it is built is not part of it, but changes it.
        let (all, is_offline) = match tree("normal,build", true) {
            Ok(all) => (all, true),
            // It may lack crates that it would fetch.
            Err(_) => (tree("normal,build", false)?, false),
        };
        let folders = all.lines().filter_map(folder_of).collect();
        let crates = tree("normal", is_offline)?;
        let mut crates = crates.lines().filter_map(depth_and_name);
        let wrong = |message| Err(Error::Ried { ried: name.to_owned(), message });
        match crates.next() {
            Some((_, found)) if found == name => {}
            found => {
                return wrong(format!(
                    "{manifest} is of package `{}`, expected `{name}`: a ried is called as its folder",
                    found.map_or("", |(_, found)| found)
                ));
            }
        }
        let of_program =
            |name: &&str| OF_PROGRAM.contains(name) || name.starts_with("gossamer-transport-");
        // From a dependency of the ried to the crate.
        let mut chain = Vec::new();
        for (depth, found) in crates {
            chain.truncate(depth.saturating_sub(1));
            chain.push(found);
            if of_program(&found) {
                let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
                let line = line_of_dependency(&text, chain[0]);
                let place = line.map_or(manifest.to_owned(), |line| format!("{manifest}:{line}"));
                return wrong(format!(
                    "it links `{found}` ({place}: {}), of which the program that loads it has one \
                     already: depend on `gossamer-ried` only, and import functions of the program",
                    chain.join(" > ")
                ));
            }
        }
        Ok((folders, is_offline))
    }

    fn cargo(&self, folder: &Path, command: &str, is_offline: bool) -> Command {
        let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut cargo = Command::new(PathBuf::from(program));
        cargo.current_dir(folder).arg(command).args(["--target", &self.target, "--quiet"]);
        OUTER.iter().for_each(|name| {
            cargo.env_remove(name);
        });
        cargo.env("RUSTC", &self.rustc);
        // Configuration files may name another folder for what is not yet done, which the cargo outside has
        // locked while it waits for this one.
        cargo.env("CARGO_BUILD_BUILD_DIR", self.rieds());
        // Cargo takes these flags, an empty list, in place of all others: those of variables, and those of
        // configuration files above the ried, such as `target-cpu=native`, with which it would not run
        // on older hosts.
        cargo.env("CARGO_ENCODED_RUSTFLAGS", "");
        if is_offline {
            cargo.arg("--offline");
        }
        if let (variable, Some(linker)) = self.linker() {
            cargo.env(variable, linker);
        }
        cargo
    }
}

/// How deep in the tree of dependencies a crate is, and its name, of a line of `cargo tree`.
fn depth_and_name(line: &str) -> Option<(usize, &str)> {
    // No name begins with a digit.
    let name_at = line.find(|letter: char| !letter.is_ascii_digit())?;
    let name = line[name_at..].split_whitespace().next()?;
    Some((line[..name_at].parse().ok()?, name))
}

/// The folder of a crate, if it is a path dependency, of a line of `cargo tree`: `1name v1.2.3 (/where/it/is)`,
/// before the path perhaps `(proc-macro)`, and after it `(*)` if the crate was listed before. Others are of a
/// registry, or have an address.
fn folder_of(line: &str) -> Option<PathBuf> {
    let line = line.strip_suffix(" (*)").unwrap_or(line).strip_suffix(')')?;
    Some(PathBuf::from(&line[line.find(" (/")? + 2..]))
}

/// The line of a manifest that has a dependency.
fn line_of_dependency(manifest: &str, name: &str) -> Option<usize> {
    let is_table = |line: &str| line.starts_with('[') && line.contains("dependencies");
    let lines = (1..).zip(manifest.lines()).skip_while(|(_, line)| !is_table(line));
    lines.filter(|(_, line)| line.contains(name)).map(|(number, _)| number).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_crates() {
        for (line, folder) in [
            ("0prices v0.1.0 (/jams/prices)", Some("/jams/prices")),
            ("1mac v0.1.0 (proc-macro) (/a (b)/mac)", Some("/a (b)/mac")),
            ("2other v0.1.0 (/a (b)) (*)", Some("/a (b)")),
            ("1syn v2.0.1 (proc-macro)", None),
            ("1syn v2.0.1 (*)", None),
            ("1far v1.0.0 (https://example.org/far#0123abcd)", None),
        ] {
            assert_eq!(folder_of(line), folder.map(PathBuf::from), "{line}");
        }
    }
}

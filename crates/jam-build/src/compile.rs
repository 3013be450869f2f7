//! The compilers: rustc for sources in Rust, gcc or clang for those in C.
//!
//! What they make does not depend on the folder in which they run: paths in it are those by which the
//! author knows the files, so a panic names `jams/NAME.rs`, and builds are reproducible.

use std::ffi::OsString;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use jam_format::Machine;

use crate::depfile;
use crate::error::Error;

/// What the compilers need to know.
#[derive(Clone, Debug)]
pub(crate) struct Compilers {
    pub(crate) rustc: OsString,
    /// The C compiler and arguments that it always gets; if empty, that of the target.
    pub(crate) cc: Vec<OsString>,
    pub(crate) target: String,
    pub(crate) machine: Machine,
    /// The optimisation: what rustc's `opt-level` may be.
    pub(crate) opt_level: String,
    /// The features of the processor, by rustc's names.
    pub(crate) features: Vec<String>,
    /// A folder for what the compilers make.
    pub(crate) work: PathBuf,
}

/// A source, and what its author calls it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'a> {
    /// The absolute path.
    pub(crate) path: &'a Path,
    /// The name of the jam.
    pub(crate) name: &'a str,
    /// The path as its author knows it.
    pub(crate) shown: &'a str,
}

impl Compilers {
    /// Compiles the crate that jams in Rust are compiled against; returns the path of the library.
    pub(crate) fn abi(&self) -> Result<PathBuf, Error> {
        let folder = self.work.join("jam-abi");
        for (name, source) in jam_abi::SOURCES {
            write(&folder.join(name), source)?;
        }
        let library = self.work.join("libjam.rlib");
        let mut rustc = self.rustc("jam", "rlib", &folder, "jam-abi");
        rustc.arg("-o").arg(&library).arg(folder.join("lib.rs"));
        run(rustc, "jam-abi").map_err(|error| self.or_no_library(error))?;
        Ok(library)
    }

    /// The error itself, or that the compiler of Rust lacks what it needs for the target.
    pub(crate) fn or_no_library(&self, error: Error) -> Error {
        let mut rustc = Command::new(&self.rustc);
        rustc.args(["--print", "target-libdir", "--target", &self.target]);
        match (&error, run(rustc, "rustc")) {
            (Error::Compile { .. }, Ok(folder)) if !Path::new(folder.trim()).is_dir() => {
                Error::NoLibrary { target: self.target.clone() }
            }
            _ => error,
        }
    }

    /// The files that were read for what [`rust`](Self::rust) or [`c`](Self::c) has made of a jam.
    pub(crate) fn sources(&self, file: File<'_>) -> Result<Vec<PathBuf>, Error> {
        depfile::files_read(&self.c_object(file).with_extension("d"), &self.work)
    }

    /// Compiles a jam in Rust with the text of its entry; returns the bytes of an archive, and how
    /// the names of the jam's own objects begin.
    pub(crate) fn rust(
        &self,
        file: File<'_>,
        entry: &str,
        abi: &Path,
    ) -> Result<(Vec<u8>, String), Error> {
        let root = self.work.join(format!("{}.entry.rs", file.name));
        write(&root, entry)?;
        let folder = file.path.parent().unwrap_or(Path::new("/"));
        let shown = Path::new(file.shown).parent().unwrap_or(Path::new(""));
        let shown = shown.to_string_lossy();
        let stem = format!("jam_{}", file.name);
        let archive = self.work.join(format!("{stem}.a"));
        let mut rustc =
            self.rustc(&stem, "staticlib", folder, if shown.is_empty() { "." } else { &shown });
        rustc.arg("-Clto=fat").arg("--extern").arg(joined("jam=", abi));
        // With -o, what rustc makes on the way is beside the archive; otherwise in the current folder.
        rustc.arg("--emit=link").arg(joined("--emit=dep-info=", &archive.with_extension("d")));
        rustc.arg("-o").arg(&archive).arg(&root);
        run(rustc, file.shown).map_err(with_hint)?;
        Ok((read(&archive)?, stem))
    }

    fn rustc(&self, name: &str, kind: &str, folder: &Path, shown: &str) -> Command {
        let mut rustc = Command::new(&self.rustc);
        rustc.args(["--edition", "2024", "--cap-lints", "allow", "--cfg", "jam_injected"]);
        rustc.args(["--crate-name", name, "--crate-type", kind, "--target", &self.target]);
        // Nothing unwinds through a jam, and the receiver has no tables of it.
        rustc.args(["-Cpanic=abort", "-Cforce-unwind-tables=no", "-Crelocation-model=pic"]);
        rustc.args(["-Ccodegen-units=1", "-Cdebug-assertions=off", "-Coverflow-checks=off"]);
        // Lines for errors of the linker; they are not in the blob.
        rustc.args(["-Cdebuginfo=line-tables-only", "-Cmetadata=jam"]);
        rustc.arg(format!("-Copt-level={}", self.opt_level));
        let mut features: Vec<_> = self.features.iter().map(|name| format!("+{name}")).collect();
        if self.machine == Machine::Aarch64 {
            // Those are functions that look at a static which the start of a program sets.
            features.push("-outline-atomics".to_owned());
        }
        if !features.is_empty() {
            rustc.arg(format!("-Ctarget-feature={}", features.join(",")));
        }
        let mut remap = |from: &Path, to: &str| {
            let mut argument = joined("--remap-path-prefix=", from);
            argument.push("=");
            argument.push(to);
            rustc.arg(argument);
        };
        remap(&self.work, "jam-build");
        remap(folder, shown);
        rustc
    }

    /// The object of a source in C.
    pub(crate) fn c_object(&self, file: File<'_>) -> PathBuf {
        self.work.join(format!("jam_{}.o", file.name))
    }

    /// Compiles a source in C, with some flags more; returns the bytes of its object.
    pub(crate) fn c(&self, file: File<'_>, flags: &[&str]) -> Result<Vec<u8>, Error> {
        let header = self.work.join("include/jam.h");
        write(&header, include_str!("jam.h"))?;
        let object = self.c_object(file);
        let mut cc = self.c_compiler(file.shown)?;
        cc.args([
            "-c",
            "-g1",
            "-std=gnu11",
            "-fPIC",
            "-fno-plt",
            "-fno-common",
            "-fvisibility=hidden",
        ]);
        cc.args(["-ffunction-sections", "-fdata-sections", "-fno-stack-protector", "-w"]);
        // A frame larger than a page touches each of its pages, so that none steps over the guard
        // below a fiber's stack. Rust's do so by themselves.
        cc.arg("-fstack-clash-protection");
        cc.args(["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
        cc.arg(match &self.opt_level[..] {
            "s" | "z" => "-Os".to_owned(),
            level => format!("-O{level}"),
        });
        if self.machine == Machine::X86_64 {
            cc.arg("-fcf-protection=none");
        } else {
            // As for Rust.
            cc.arg("-mno-outline-atomics");
        }
        cc.args(c_features(self.machine, &self.features));
        let folder = file.path.parent().unwrap_or(Path::new("/"));
        let shown = Path::new(file.shown).parent().unwrap_or(Path::new(""));
        let mut map = joined("-ffile-prefix-map=", folder);
        map.push("=");
        map.push(if shown.as_os_str().is_empty() { ".".as_ref() } else { shown.as_os_str() });
        cc.arg(map).arg("-I").arg(self.work.join("include"));
        cc.args(flags).arg("-o").arg(&object).arg(file.path);
        cc.args(["-MMD", "-MF"]).arg(object.with_extension("d"));
        run(cc, file.shown)?;
        read(&object)
    }

    /// The C compiler for `file`, told the target if it is clang, which compiles for every target.
    pub(crate) fn c_compiler(&self, file: &str) -> Result<Command, Error> {
        let words = match &self.cc[..] {
            [] => vec![OsString::from(self.default_cc(file)?)],
            words => words.to_vec(),
        };
        // Behind another program, such as ccache, too; of a path, its folders may be named as they like.
        let is_clang = words.iter().map(Path::new).any(|word| {
            let name = word.file_name().unwrap_or_default().to_string_lossy();
            name.contains("clang") && !word.as_os_str().as_encoded_bytes().starts_with(b"-")
        });
        let mut cc = Command::new(&words[0]);
        cc.args(&words[1..]);
        if is_clang {
            cc.arg(format!("--target={}", self.target));
        }
        Ok(cc)
    }

    fn default_cc(&self, file: &str) -> Result<String, Error> {
        let own = Machine::CURRENT == Some(self.machine);
        let gnu = self.cross_gcc();
        let names = if own { &["gcc", "cc", "clang"][..] } else { &[&gnu[..], "clang"] };
        let found = names.iter().find(|name| is_there(name)).map(|name| (*name).to_owned());
        found.ok_or_else(|| {
            let (machine, expected) = (self.machine, names.join(" or "));
            Error::NoCompiler { machine, file: file.to_owned(), expected }
        })
    }

    /// The name of gcc for the machine, where it is another one than this.
    pub(crate) fn cross_gcc(&self) -> String {
        format!("{}-linux-gnu-gcc", self.machine)
    }
}

/// The words of a command, as makefiles and build scripts have it in CC: none if it is empty; one if it is
/// the path of a file, which may have spaces.
pub(crate) fn words(command: OsString) -> Vec<OsString> {
    match command.to_str() {
        Some(text) if !Path::new(text).is_file() => {
            text.split_whitespace().map(OsString::from).collect()
        }
        _ => vec![command],
    }
}

/// Whether there is a compiler of this name.
pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The flags of C compilers for features, whose names are rustc's but for a few: on what every processor of
/// the machine has, and not on what the compiler would choose, which the blob would not say.
fn c_features(machine: Machine, features: &[String]) -> Vec<String> {
    let name_in_c = |name: &String| {
        Some(
            match (machine, &name[..]) {
                (Machine::X86_64, "cmpxchg16b") => "cx16",
                (Machine::X86_64, "bmi1") => "bmi",
                (Machine::X86_64, "pclmulqdq") => "pclmul",
                (Machine::Aarch64, "rdm") => "rdma",
                // gcc and clang have no extension of these names, only architectures that include them
                // and others. Code without them runs wherever they are.
                (Machine::Aarch64, "rcpc2" | "lse2") => return None,
                (_, name) => name,
            }
            .to_owned(),
        )
    };
    let names = features.iter().filter_map(name_in_c);
    match machine {
        Machine::X86_64 => iter::once("-march=x86-64".to_owned())
            .chain(names.map(|name| format!("-m{name}")))
            .collect(),
        Machine::Aarch64 => {
            vec![names.fold("-march=armv8-a".to_owned(), |march, name| march + "+" + &name)]
        }
    }
}

/// Runs a compiler, or cargo: what it prints, and if it fails an error with that.
pub(crate) fn run(mut command: Command, file: &str) -> Result<String, Error> {
    let program = PathBuf::from(command.get_program());
    let output = command.output().map_err(Error::io("start", program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Compile { file: file.to_owned(), output })
}

/// The error itself, with what to do after the compiler's words if a jam uses `std`: those say only
/// that there is no such crate.
fn with_hint(error: Error) -> Error {
    let is_std = |line: &str| line.starts_with("error") && line.contains("`std`");
    match error {
        Error::Compile { file, output } if output.lines().any(is_std) => {
            let output = format!("{}\n\njams have `core` only, not `std`", output.trim_end());
            Error::Compile { file, output }
        }
        error => error,
    }
}

fn joined(flag: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(flag);
    argument.push(path);
    argument
}

/// Whether a file is one that editors and systems keep for themselves, such as the lock `.#NAME.c`.
pub(crate) fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::io("read", path))
}

/// Writes a file that differs from what is there, and the folders above it.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    let content = content.as_ref();
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(Error::io("create folder", folder))?;
    fs::write(path, content).map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_compilers_have_names_of_their_own() {
        let flags = |machine: Machine| {
            let names: Vec<_> = machine.features().iter().map(|name| (*name).to_owned()).collect();
            c_features(machine, &names).join(" ")
        };
        let arm = "-march=armv8-a+crc+lse+rdma+fp16+dotprod+aes+sha2+sha3+rcpc+bf16+i8mm+sve+sve2";
        assert_eq!(flags(Machine::Aarch64), arm);
        assert_eq!(c_features(Machine::Aarch64, &[]), ["-march=armv8-a"]);
        assert_eq!(c_features(Machine::X86_64, &[]), ["-march=x86-64"]);
        let x86 = flags(Machine::X86_64);
        assert!(x86.contains(" -mcx16 ") && x86.contains(" -mpclmul "), "{x86}");
    }
}

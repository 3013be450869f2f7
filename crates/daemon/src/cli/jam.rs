//! `gossamer jam`: builds and signs packages of jams and rieds, and shows what is in one.
//! `commands.rs` sends them.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use std::fs;
use std::path::{Path, PathBuf};

use gossamer_job::JobId;
use jam_build::{Builder, Interface};
use jam_format::{
    Algorithm, ElementKind, FunctionKind, Machine, Package, PackageError, Parsed, Types,
};
use rustls::pki_types::CertificateDer;

use crate::causes::with_causes;
use crate::cli::args::JamCommand;
use crate::cli::output::{CommandError, print};
use crate::cli::{commands, on_runtime};
use crate::escape;
use crate::files;
use crate::security::identity::Identity;
use crate::security::member::Member;
use crate::security::signing;

/// `gossamer jam`.
pub(crate) fn jam(command: JamCommand) -> Result<u8, CommandError> {
    let done = match command {
        JamCommand::Build { folder, machines, target, features, output } => {
            let mut targets: Vec<_> = machines.iter().copied().map(target_of).collect();
            if targets.is_empty() {
                targets.push(target.unwrap_or_else(|| target_of(std::env::consts::ARCH)));
            }
            build(&folder, &targets, &features, output)
        }
        JamCommand::Inspect { disassemble, identity, file } => {
            let bytes = read_package(&file)?;
            let identity = identity.map(|directory| Identity::load(&directory)).transpose()?;
            let identity = identity.as_ref();
            let shown = if disassemble {
                in_work_folder(|work| inspect(&bytes, identity, Some(&work.join("jam.o"))))?
            } else {
                inspect(&bytes, identity, None)
            };
            let shown = shown
                .map_err(|error| CommandError::Other(format!("{}: {error}", file.display())))?;
            print(shown.as_bytes())
        }
        JamCommand::Sign { identity, job, output, package } => {
            let identity = Identity::load(&identity)?;
            let bytes = read_package(&package)?;
            let signed = signing::sign(&identity, &bytes, job).map_err(|error| {
                CommandError::Other(format!("{}: {}", package.display(), with_causes(&error)))
            })?;
            let output = output.unwrap_or(package);
            files::write(&output, &signed, 0o644).map_err(|error| cannot_access(&output, error))
        }
        JamCommand::Send { who, job, package } => {
            let bytes = read_package(&package)?;
            return on_runtime(commands::send_package(who, job, &package, bytes));
        }
    };
    done.map(|()| 0)
}

/// The target of rustc for a machine.
fn target_of(machine: impl Display) -> String {
    format!("{machine}-unknown-linux-gnu")
}

/// The bytes of a package, which is a file: its folder is what it is built from.
fn read_package(file: &Path) -> Result<Vec<u8>, CommandError> {
    if file.is_dir() {
        let folder = file.display();
        return Err(CommandError::Other(format!(
            "{folder} is a folder, expected a package: `gossamer jam build {folder}` builds one of it"
        )));
    }
    fs::read(file).map_err(|error| cannot_access(file, error))
}

fn cannot_access(path: &Path, error: std::io::Error) -> CommandError {
    CommandError::File { path: path.to_owned(), error }
}

fn build(
    folder: &Path,
    targets: &[String],
    features: &[String],
    output: Option<PathBuf>,
) -> Result<(), CommandError> {
    let failed = |error: jam_build::Error| CommandError::Other(with_causes(&error).to_string());
    let built = in_work_folder(|work| {
        let mut builders = Vec::new();
        for target in targets {
            let builder = Builder::new(target, work.join(target)).map_err(failed)?;
            let features = features_for(target, targets, features);
            let builder = builder.features(&features);
            builders.push(builder.map_err(|error| CommandError::Other(error.to_string()))?);
        }
        let builder = builders.into_iter().reduce(Builder::and);
        builder.expect("there is a target").build(folder).map_err(failed)
    })??;
    let output = output.unwrap_or_else(|| format!("{}.jampkg", built.name).into());
    fs::write(&output, &built.bytes).map_err(|error| cannot_access(&output, error))?;
    let jams = counted(built.jams.iter().map(|jam| &jam.name), "jam");
    let rieds = counted(built.rieds.iter().map(|ried| &ried.name), "ried");
    let parts: Vec<_> = jams.into_iter().chain(rieds).collect();
    let (parts, bytes) = (parts.join(", "), built.bytes.len());
    print(format!("{}: {parts}, {bytes} bytes\n", output.display()).as_bytes())
}

/// How many there are, each counted once for all machines: `2 jams`; `None` if none.
fn counted<'a>(names: impl Iterator<Item = &'a String>, noun: &str) -> Option<String> {
    match names.collect::<BTreeSet<_>>().len() {
        0 => None,
        1 => Some(format!("1 {noun}")),
        count => Some(format!("{count} {noun}s")),
    }
}

/// Runs `f` with a folder for its files, which is removed then.
fn in_work_folder<T>(f: impl FnOnce(&Path) -> T) -> Result<T, CommandError> {
    let name = format!("gossamer-jam-{}", files::random_secret()?.to_hex());
    let work = std::env::temp_dir().join(name);
    files::private_directory(&work).map_err(|error| cannot_access(&work, error))?;
    let result = f(&work);
    // What is left is not needed.
    let _ = fs::remove_dir_all(&work);
    Ok(result)
}

/// Those of the features that are for one of the targets: all of them, but for those that only other
/// machines have.
fn features_for<'a>(target: &str, targets: &[String], features: &'a [String]) -> Vec<&'a str> {
    let has = |target: &str, feature: &str| {
        let of = |machine: &Machine| target.starts_with(&format!("{machine}-"));
        Machine::ALL.into_iter().find(of).is_some_and(|m| m.features().contains(&feature))
    };
    let is_for_others =
        |feature: &str| !has(target, feature) && targets.iter().any(|other| has(other, feature));
    features.iter().map(String::as_str).filter(|feature| !is_for_others(feature)).collect()
}

/// What a package consists of, as text; with the code of its jams, if there is a file for the
/// disassembler. Verifies its signature for the rack of `identity`, if there is one. The error is a
/// message.
fn inspect(
    bytes: &[u8],
    identity: Option<&Identity>,
    disassembled: Option<&Path>,
) -> Result<String, String> {
    let failed = |error: PackageError| with_causes(&error).to_string();
    let package = Package::parse(bytes).map_err(failed)?;
    let is_verified = match identity {
        None => "not verified",
        Some(identity) => {
            signing::verify(identity, &package).map_err(|error| with_causes(&error).to_string())?;
            "verified"
        }
    };
    let mut text = String::new();
    // Some of it, such as the names of libraries that a ried needs, the package's maker chose.
    let mut line = |line: String| {
        writeln!(text, "{}", escape::line(&line)).expect("writing to text");
    };
    line(format!("package {}: {} bytes", package.name(), bytes.len()));
    line(format!("  digest {}", package.digest()));
    match package.signature().map_err(failed)? {
        None => line("  not signed".to_owned()),
        Some(signature) => {
            let job =
                signature.job.map_or("every job".to_owned(), |job| format!("job {}", JobId(job)));
            let of = Member::of(&CertificateDer::from(signature.certificate));
            let by = of.map_or_else(
                |error| error.to_string(),
                |member| format!("{} {} of rack {}", member.role, member.name, member.rack),
            );
            let algorithm = match signature.algorithm {
                Algorithm::EcdsaP256 => "ECDSA P-256",
                Algorithm::Ed25519 => "Ed25519",
            };
            line(format!("  signed by {by} with {algorithm}, for {job} ({is_verified})"));
        }
    }
    for element in package.elements() {
        let (id, name, machine) = (element.id, element.name, element.machine);
        let kind = match element.kind {
            ElementKind::Jam => "jam",
            ElementKind::Ried => "ried",
        };
        line(format!("{id} {kind} {name} for {machine}: {} bytes", element.bytes.len()));
        line(format!("  digest {}", element.digest));
        match element.kind {
            ElementKind::Jam => {
                let blob =
                    Parsed::parse(element.bytes).expect("a package that is checked has blobs");
                lines_of(&blob, package.types().of_element(id)).into_iter().for_each(&mut line);
                if let Some(file) = disassembled {
                    let listing = jam_build::disassemble(&blob, file);
                    let listing = listing.map_err(|error| with_causes(&error).to_string())?;
                    listing.lines().for_each(|shown| line(format!("  {shown}").trim_end().into()));
                }
            }
            ElementKind::Ried => {
                lines_of_ried(name, element.bytes).into_iter().for_each(&mut line);
            }
        }
    }
    Ok(text)
}

fn lines_of_ried(name: &str, library: &[u8]) -> Vec<String> {
    let Interface { exports, imports, libraries } = match Interface::of(name, library) {
        Ok(interface) => interface,
        Err(error) => return vec![format!("  not loadable: {}", with_causes(&error))],
    };
    let exports = exports.iter().map(|f| function("export", &f.name, &f.types, f.signature));
    let imports = imports.iter().map(|f| function("import", &f.name, &f.types, f.signature));
    let libraries = libraries.iter().map(|library| format!("  needs {library}"));
    exports.chain(imports).chain(libraries).collect()
}

/// A function, by its types if they are known, and by their hash, which receivers compare. Functions of
/// C's table have none.
fn function(kind: &str, name: &str, types: &str, signature: u64) -> String {
    match types {
        "" if signature == 0 => format!("  {kind} {name} (built in)"),
        "" => format!("  {kind} {name} ({signature:016x})"),
        types => format!("  {kind} fn {name}{types} ({signature:016x})"),
    }
}

fn lines_of(blob: &Parsed<'_>, types: Types<'_>) -> Vec<String> {
    let line = |kind: FunctionKind, word: &str, name: &str, signature| {
        let types = types.find(kind, name).map_or("", |function| function.types);
        function(word, name, types, signature)
    };
    let mut lines = vec![
        format!("  text {} bytes, data {}", blob.text().len(), blob.data().len()),
        line(FunctionKind::Entry, "entry", blob.name(), blob.entry_signature()),
    ];
    lines.extend(blob.property().map(|name| format!("  property {name}")));
    let parts = [
        ("arguments", blob.args_bytes()),
        ("payload elements", blob.element_bytes()),
        ("result", blob.reply_bytes()),
    ];
    let sizes = parts.iter().filter(|(_, bytes)| *bytes > 0);
    lines.extend(sizes.map(|(part, bytes)| format!("  {part} {bytes} bytes")));
    let features: Vec<_> = blob.features().names(blob.machine()).collect();
    if !features.is_empty() {
        lines.push(format!("  processor features {}", features.join(", ")));
    }
    let imports = blob.imports();
    lines.extend(imports.map(|i| line(FunctionKind::Import, "import", i.name, i.signature)));
    lines
}

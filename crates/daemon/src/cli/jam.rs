//! `gossamer jam`: builds and signs packages of jams and rieds, and shows what is in one.
//! `commands.rs` sends them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use gossamer_job::JobId;
use jam_build::{Builder, Interface};
use jam_format::{ElementKind, Package, PackageError, Parsed};
use rustls::pki_types::CertificateDer;

use crate::causes::with_causes;
use crate::cli::args::JamCommand;
use crate::cli::output::{CommandError, print};
use crate::cli::{commands, on_runtime};
use crate::files;
use crate::security::identity::Identity;
use crate::security::member::Member;
use crate::security::signing;

/// `gossamer jam`.
pub(crate) fn jam(command: JamCommand) -> Result<u8, CommandError> {
    let done = match command {
        JamCommand::Build { folder, target, features, output } => {
            let target = target.unwrap_or_else(this_target);
            build(&folder, &target, &features, output)
        }
        JamCommand::Inspect { file } => {
            let bytes = fs::read(&file).map_err(|error| cannot_access(&file, error))?;
            let shown = inspect(&bytes).map_err(|error| {
                CommandError::Other(format!("{}: {}", file.display(), with_causes(&error)))
            })?;
            print(shown.as_bytes())
        }
        JamCommand::Sign { identity, job, output, package } => {
            let identity = Identity::load(&identity)?;
            let bytes = fs::read(&package).map_err(|error| cannot_access(&package, error))?;
            let signed = signing::sign(&identity, &bytes, job).map_err(|error| {
                CommandError::Other(format!("{}: {}", package.display(), with_causes(&error)))
            })?;
            let output = output.unwrap_or(package);
            files::write(&output, &signed, 0o644).map_err(|error| cannot_access(&output, error))
        }
        JamCommand::Send { who, job, package } => {
            return on_runtime(commands::send_package(who, job, package));
        }
    };
    done.map(|()| 0)
}

/// The target of this machine.
fn this_target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn cannot_access(path: &Path, error: std::io::Error) -> CommandError {
    CommandError::File { path: path.to_owned(), error }
}

fn build(
    folder: &Path,
    target: &str,
    features: &[String],
    output: Option<PathBuf>,
) -> Result<(), CommandError> {
    let failed = |error: jam_build::Error| CommandError::Other(with_causes(&error).to_string());
    let name = format!("gossamer-jam-{}", files::random_secret()?.to_hex());
    let work = std::env::temp_dir().join(name);
    let features: Vec<_> = features.iter().map(String::as_str).collect();
    let builder = Builder::new(target, &work).map_err(failed)?.features(&features);
    let builder = builder.map_err(|error| CommandError::Other(error.to_string()))?;
    let built = builder.build(folder);
    // What the compilers made is not needed, and may not be there.
    let _ = fs::remove_dir_all(&work);
    let built = built.map_err(failed)?;
    let output = output.unwrap_or_else(|| format!("{}.jampkg", built.name).into());
    fs::write(&output, &built.bytes).map_err(|error| cannot_access(&output, error))
}

/// What a package consists of, as text.
fn inspect(bytes: &[u8]) -> Result<String, PackageError> {
    let package = Package::parse(bytes)?;
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("writing to text");
    line(format!("package {}: {} bytes", package.name(), bytes.len()));
    line(format!("  digest {}", package.digest()));
    match package.signature()? {
        None => line("  not signed".to_owned()),
        Some(signature) => {
            let job =
                signature.job.map_or("every job".to_owned(), |job| format!("job {}", JobId(job)));
            let of = Member::of(&CertificateDer::from(signature.certificate));
            let by = of.map_or_else(
                |error| error.to_string(),
                |member| format!("{} {} of rack {}", member.role, member.name, member.rack),
            );
            line(format!("  signed by {by}, for {job} (not verified)"));
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
        let lines = match element.kind {
            // A jam of a package that has been checked is a blob.
            ElementKind::Jam => Parsed::parse(element.bytes).map(|blob| lines_of(&blob)).ok(),
            ElementKind::Ried => Some(lines_of_ried(name, element.bytes)),
        };
        lines.into_iter().flatten().for_each(&mut line);
    }
    Ok(text)
}

fn lines_of_ried(name: &str, library: &[u8]) -> Vec<String> {
    let Interface { exports, imports, libraries } = match Interface::of(name, library) {
        Ok(interface) => interface,
        Err(error) => return vec![format!("  not loadable: {}", with_causes(&error))],
    };
    let exports = exports.iter().map(|f| format!("  export {} {:016x}", f.name, f.signature));
    let imports = imports.iter().map(|f| format!("  import {} {:016x}", f.name, f.signature));
    let libraries = libraries.iter().map(|library| format!("  needs {library}"));
    exports.chain(imports).chain(libraries).collect()
}

fn lines_of(blob: &Parsed<'_>) -> Vec<String> {
    let mut lines = vec![
        format!("  text {} bytes, data {}", blob.text().len(), blob.data().len()),
        format!("  signature {:016x}", blob.entry_signature()),
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
    lines.extend(imports.map(|i| format!("  import {} {:016x}", i.name, i.signature)));
    lines
}

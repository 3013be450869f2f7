//! `cargo xtask package`: makes the packages that a registry would get, and builds each from its
//! archive with the oldest compiler that they claim to support (`rust-version`).
//!
//! It finds a file that an archive lacks, a dependency without a version, and the use of what only a
//! newer compiler has.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Package;

use crate::step::Step;
use crate::workspace::Workspace;

/// Packages all members that may be published, and builds them.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let members = &workspace.metadata.packages;
    let is_public = |package: &&Package| package.publish.is_none();
    let public: Vec<_> = members.iter().filter(is_public).collect();
    let first = public.first().context("every package has `publish = false`")?;
    let oldest = first.rust_version.as_ref().context("a package has no `rust-version`")?;
    let oldest = format!("{}.{}", oldest.major, oldest.minor);

    let target = workspace.target().join("packages");
    forget(&public, &target)?;
    let others = members.iter().filter(|package| !is_public(package));
    let step = cargo(workspace, &oldest, "package --workspace --allow-dirty")?;
    let step = step.env("CARGO_TARGET_DIR", &target);
    others.fold(step, |step, package| step.arg("--exclude").arg(package.name.as_str())).run()?;

    for package in &public {
        let archive =
            target.join("package").join(format!("{}-{}.crate", package.name, package.version));
        ensure!(archive.is_file(), "cargo package made no {}", archive.display());
    }
    println!("package: {} packages build from their archives with Rust {oldest}", public.len());
    Ok(())
}

/// Removes what cargo has of these packages since it last built them from their archives: it unpacks
/// and builds a version of a package only once, and ours change without a new version.
fn forget(packages: &[&Package], target: &Path) -> Result<()> {
    if target.is_dir() {
        remove(target)?;
    }
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    let unpacked = home.context("no home directory")?.join("registry/src");
    let Ok(registries) = fs::read_dir(&unpacked) else { return Ok(()) };
    for registry in registries {
        let registry = registry?;
        // Cargo's own, of archives in a folder: it has no host. Others are named by theirs.
        if !registry.file_name().as_encoded_bytes().starts_with(b"-") {
            continue;
        }
        for package in packages {
            let folder = registry.path().join(format!("{}-{}", package.name, package.version));
            if folder.is_dir() {
                remove(&folder)?;
            }
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// A command of the cargo of Rust `version`, such as `1.95`: ours if it is that, else rustup's.
fn cargo(workspace: &Workspace, version: &str, arguments: &str) -> Result<Step> {
    let root = &workspace.root;
    let ours = Step::cargo(root, "--version").read()?;
    if is_version(&ours, version) {
        return Ok(Step::cargo(root, arguments));
    }
    let run = format!("run {version} cargo");
    ensure!(
        Step::program(root, "rustup", &format!("{run} --version")).works(),
        "no Rust {version} on this machine, the oldest that is supported: rustup toolchain install \
         {version} --profile minimal"
    );
    Ok(Step::program(root, "rustup", &format!("{run} {arguments}")))
}

/// Whether a program that prints `printed` for `--version` is of `version` or a patch of it.
fn is_version(printed: &str, version: &str) -> bool {
    let number = printed.split_whitespace().nth(1);
    let rest = number.and_then(|number| number.strip_prefix(version));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_of_their_version_and_others_are_not() {
        assert!(is_version("cargo 1.95.0 (f2d3ce0bd 2026-03-21)\n", "1.95"));
        assert!(is_version("cargo 1.95", "1.95"));
        for other in ["cargo 1.950.0", "cargo 1.9.5", "cargo 1.96.0-nightly", "cargo", ""] {
            assert!(!is_version(other, "1.95"), "{other}");
        }
    }
}

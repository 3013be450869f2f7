//! `cargo xtask package`: makes the packages that a registry would get, and checks each as it is in its
//! archive with the oldest compiler that they claim to support (`rust-version`).
//!
//! It finds a file that an archive lacks, a dependency without a version, a feature of a dependency
//! that only another package asks for, and the use of what only a newer compiler has. To link is the
//! tests' part. The contents of the archives become a workspace with the profiles and the lock file of
//! this one, so dependencies are those that the other gates have built. It names one package at a
//! time, so that none gets features for another.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Package;

use crate::step::Step;
use crate::workspace::Workspace;

/// A package with xtask's build dependencies, which is named in every build: they say which features
/// the dependencies of procedural macros have. So those are the macros that the other gates have built,
/// and most of the dependencies of packages, too, which use no such features themselves.
const MACROS: &str = "procedural-macros";

/// Packages all members that may be published, and checks them.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let members = &workspace.metadata.packages;
    let is_public = |package: &&Package| package.publish.is_none();
    let public: Vec<_> = members.iter().filter(is_public).collect();
    let first = public.first().context("every package has `publish = false`")?;
    let oldest = first.rust_version.as_ref().context("a package has no `rust-version`")?;
    let oldest = format!("{}.{}", oldest.major, oldest.minor);
    let toolchain = toolchain(&workspace.root, &oldest)?;

    let folder = workspace.target().join("packages");
    if folder.is_dir() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let others = members.iter().filter(|package| !is_public(package));
    let step = Step::cargo(&workspace.root, "package --workspace --no-verify --allow-dirty");
    let step = step.env("CARGO_TARGET_DIR", &folder);
    others.fold(step, |step, package| step.arg("--exclude").arg(package.name.as_str())).run()?;

    for package in &public {
        unpack(&folder.join("package"), &named(package))?;
    }
    let macros = format!(
        "[package]\nname = \"{MACROS}\"\nedition = \"2024\"\n\n{}",
        tables(&workspace.read("xtask/Cargo.toml")?, "[build-dependencies]")
    );
    for (name, text) in [
        ("Cargo.toml", manifest(&public, &workspace.read("Cargo.toml")?)),
        ("Cargo.lock", workspace.read("Cargo.lock")?),
        ("package/macros/Cargo.toml", macros),
        ("package/macros/src/lib.rs", String::new()),
    ] {
        write(&folder.join(name), &text)?;
    }
    for package in &public {
        check(workspace, &folder, package, toolchain)?;
    }
    println!("package: {} packages compile from their archives with Rust {oldest}", public.len());
    Ok(())
}

/// The name of a package's archive and of the folder in it.
fn named(package: &Package) -> String {
    format!("{}-{}", package.name, package.version)
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file is in a folder")?;
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(file, text));
    written.with_context(|| format!("cannot write {}", file.display()))
}

/// Unpacks the archive of a package where it is. The files of an archive bear a date of long ago: with
/// theirs, cargo would take them for those of the last time.
fn unpack(folder: &Path, name: &str) -> Result<()> {
    let archive = folder.join(format!("{name}.crate"));
    ensure!(archive.is_file(), "cargo package made no {}", archive.display());
    Step::program(folder, "tar", "--extract --gzip --touch --file").arg(&archive).run()
}

/// The manifest of a workspace of the packages, each of which takes the others for those of the
/// registry, with the profiles of `ours`.
fn manifest(packages: &[&Package], ours: &str) -> String {
    let folder = |package: &Package| format!("\"package/{}\"", named(package));
    let members: Vec<_> = packages.iter().map(|package| folder(package)).collect();
    let patches = packages.iter().map(|package| {
        let (name, folder) = (&package.name, folder(package));
        format!("{name} = {{ path = {folder} }}\n")
    });
    let patches: String = patches.collect();
    let members = members.join(", ");
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{members}, \"package/macros\"]\n\n[patch.crates-io]\n{patches}\n{}",
        tables(ours, "[profile.")
    )
}

/// The tables of a manifest whose first lines begin with `head`.
fn tables(manifest: &str, head: &str) -> String {
    let mut is_wanted = false;
    let lines = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            is_wanted = line.starts_with(head);
        }
        is_wanted
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Checks a package of the workspace in `folder`, with rustup's `toolchain` if not with ours.
fn check(
    workspace: &Workspace,
    folder: &Path,
    package: &Package,
    toolchain: Option<&str>,
) -> Result<()> {
    let arguments = format!("check --package {} --package {MACROS}", package.name);
    match toolchain {
        None => Step::cargo(folder, &arguments).env("CARGO_TARGET_DIR", workspace.target()).run(),
        // It would find nothing in our build folder.
        Some(version) => {
            Step::program(folder, "rustup", &format!("run {version} cargo {arguments}"))
                .env("CARGO_TARGET_DIR", folder.join("target"))
                .run()
        }
    }
}

/// The toolchain of rustup that has Rust `version`, such as `1.95`; `None` if that is what we have.
fn toolchain<'a>(root: &Path, version: &'a str) -> Result<Option<&'a str>> {
    if is_version(&Step::cargo(root, "--version").read()?, version) {
        return Ok(None);
    }
    ensure!(
        Step::program(root, "rustup", &format!("run {version} cargo --version")).works(),
        "no Rust {version} on this machine, the oldest that is supported: rustup toolchain install \
         {version} --profile minimal"
    );
    Ok(Some(version))
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
    fn the_packages_are_a_workspace_with_our_profiles() {
        let workspace = Workspace::find().unwrap();
        let package = |name: &&str| workspace.metadata.packages.iter().find(|p| *p.name == *name);
        let packages: Vec<_> =
            ["gossamer-fiber", "gossamer-job"].iter().filter_map(package).collect();
        let ours = "[workspace]\nmembers = []\n[profile.dev]\ndebug = 1\n\n[profile.dev.package.a]\n\
                    opt-level = 1\n[workspace.dependencies]\na = \"1\"\n";
        let expected = "[workspace]\nresolver = \"3\"\n\
                        members = [\"package/gossamer-fiber-0.1.0\", \"package/gossamer-job-0.1.0\", \"package/macros\"]\n\n\
                        [patch.crates-io]\n\
                        gossamer-fiber = { path = \"package/gossamer-fiber-0.1.0\" }\n\
                        gossamer-job = { path = \"package/gossamer-job-0.1.0\" }\n\n\
                        [profile.dev]\ndebug = 1\n\n[profile.dev.package.a]\nopt-level = 1\n";
        assert_eq!(manifest(&packages, ours), expected);
    }

    #[test]
    fn patches_are_of_their_version_and_others_are_not() {
        assert!(is_version("cargo 1.95.0 (f2d3ce0bd 2026-03-21)\n", "1.95"));
        assert!(is_version("cargo 1.95", "1.95"));
        for other in ["cargo 1.950.0", "cargo 1.9.5", "cargo 1.96.0-nightly", "cargo", ""] {
            assert!(!is_version(other, "1.95"), "{other}");
        }
    }
}

//! The workspace: where it is, what cargo says is in it, and its sources as tokens.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Message, Metadata, MetadataCommand, TargetKind};
use proc_macro2::TokenStream;

use crate::step::Step;

/// Builds the programs that the gates run. It names no package: cargo selects the features of a
/// dependency for all packages of a build together, so a build of other packages would build most
/// dependencies again.
const PROGRAMS: &str = "build --release --bin kv --bin graph --bin chaos --bin gossamer --bin gossamerd \
    --bin one-request";

/// The workspace that this program belongs to.
pub(crate) struct Workspace {
    /// Its top folder.
    pub(crate) root: PathBuf,
    /// Its members, by `cargo metadata`; dependencies are not resolved, so this works without a
    /// network.
    pub(crate) metadata: Metadata,
}

/// A Rust file of the workspace.
pub(crate) struct Source {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

impl Workspace {
    /// Finds the workspace of this crate.
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask is not inside a workspace")?.to_path_buf();
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            // Where all steps run: a relative CARGO_TARGET_DIR is relative to it.
            .current_dir(&root)
            .no_deps()
            .exec()
            .context("cargo metadata failed")?;
        Ok(Self { root, metadata })
    }

    /// Builds `kv`, `graph`, `chaos`, `gossamer`, `gossamerd` and the program of the hot path, as releases.
    pub(crate) fn build_programs(&self) -> Result<()> {
        Step::cargo(&self.root, PROGRAMS).run()
    }

    /// Where cargo builds to.
    pub(crate) fn target(&self) -> PathBuf {
        self.metadata.target_directory.clone().into_std_path_buf()
    }

    /// One of these programs, once all of them are built.
    pub(crate) fn build_program(&self, name: &str) -> Result<PathBuf> {
        let step = Step::cargo(&self.root, PROGRAMS);
        let built = step.args("--message-format json-render-diagnostics").capture()?;
        executable(&built, name)
    }

    /// Fails on systems on which the kit of the benchmarks is empty.
    pub(crate) fn check_can_measure() -> Result<()> {
        ensure!(
            cfg!(all(target_os = "linux", target_arch = "x86_64")),
            "this reads x86-64 instructions and Linux clocks: run it on Linux and x86-64"
        );
        Ok(())
    }

    /// The folder of the benchmarks of `what`, which are a workspace of their own.
    pub(crate) fn benchmarks(&self, what: &str) -> Result<PathBuf> {
        Self::check_can_measure()?;
        self.own_workspace(&format!("benchmarks/{what}"))
    }

    /// A folder that is a workspace of its own.
    pub(crate) fn own_workspace(&self, folder: &str) -> Result<PathBuf> {
        let folder = self.root.join(folder);
        if !folder.join("Cargo.toml").is_file() {
            bail!("no Cargo.toml in {}: the checkout is incomplete", folder.display());
        }
        Ok(folder)
    }

    /// The test programs of all members as (package, test), those whose name starts with `prefix`.
    pub(crate) fn tests(&self, prefix: &str) -> Vec<(String, String)> {
        let of = |package: &cargo_metadata::Package| {
            let tests = package.targets.iter().filter(|t| t.kind.contains(&TargetKind::Test));
            let named = tests.filter(|t| t.name.starts_with(prefix));
            named.map(|t| (package.name.to_string(), t.name.clone())).collect::<Vec<_>>()
        };
        self.metadata.packages.iter().flat_map(of).collect()
    }

    /// A file of the workspace as text.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    /// Every Rust file under `folder` (relative to the root), sorted by path, without build output. A
    /// folder that does not exist has none.
    pub(crate) fn sources(&self, folder: &str) -> Result<Vec<Source>> {
        let mut paths = Vec::new();
        let top = self.root.join(folder);
        if top.is_dir() {
            rust_files(&top, &mut paths)?;
        }
        paths.sort();
        let source = |path: PathBuf| {
            let relative = path.strip_prefix(&self.root)?.to_str().context("a path in UTF-8")?;
            Ok(Source { path: relative.replace('\\', "/"), text: fs::read_to_string(&path)? })
        };
        paths.into_iter().map(source).collect()
    }
}

/// The program of this name in what cargo prints as JSON.
pub(crate) fn executable(messages: &[u8], name: &str) -> Result<PathBuf> {
    for message in Message::parse_stream(messages) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        if let Some(path) = artifact.executable.filter(|_| artifact.target.name == name) {
            return Ok(path.into());
        }
    }
    bail!("no {name} among what cargo built")
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {folder:?}"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                rust_files(&path, out)?;
            }
        } else if name.ends_with(".rs") {
            out.push(path);
        }
    }
    Ok(())
}

impl Source {
    /// The file as tokens: without comments, with doc comments as attributes, and with the inside of
    /// macros, which a syntax tree would not show.
    pub(crate) fn tokens(&self) -> Result<TokenStream> {
        match self.text.parse() {
            Ok(tokens) => Ok(tokens),
            Err(error) => bail!("{}: not Rust: {error}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_finds_itself() {
        let workspace = Workspace::find().unwrap();
        assert!(workspace.metadata.packages.iter().any(|p| *p.name == "xtask"));
        let sources = workspace.sources("xtask").unwrap();
        assert!(sources.iter().any(|s| s.path == "xtask/src/workspace.rs"));
        assert!(workspace.sources("no/such/folder").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_rust_is_named() {
        let source = Source { path: "a/b.rs".into(), text: "fn (".into() };
        assert!(source.tokens().unwrap_err().to_string().starts_with("a/b.rs: not Rust"));
    }
}

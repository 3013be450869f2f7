//! Part of `cargo xtask doc`: every file and every test that docs/thesis.md names exists, and every
//! document that a Rust file names by its path, so that both stay true when files move.
//!
//! In the tables of the page, backquotes around a path with a slash name a file, and `file::function`
//! names a test in it.

use anyhow::{Result, bail, ensure};

use crate::workspace::{Source, Workspace};

const PAGE: &str = "docs/thesis.md";

/// Where documents are, as Rust files name them.
const DOCUMENTS: &str = "docs/";

/// The folders with Rust files.
const SOURCES: [&str; 5] = ["benchmarks", "crates", "fuzz", "tools", "xtask"];

/// A file of the workspace, and perhaps a test in it, that the page names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    file: String,
    test: Option<String>,
}

/// Checks the page and the Rust files.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    check_page(workspace)?;
    check_sources(workspace)
}

fn check_sources(workspace: &Workspace) -> Result<()> {
    let mut wrong = Vec::new();
    let mut named = 0;
    for folder in SOURCES {
        for Source { path, text } in workspace.sources(folder)? {
            let documents = documents(&text);
            named += documents.len();
            let gone = documents.into_iter().filter(|document| workspace.read(document).is_err());
            wrong.extend(gone.map(|document| format!("{path}: no {document}")));
        }
    }
    ensure!(named > 0, "no Rust file names a document");
    if !wrong.is_empty() {
        bail!("Rust files name documents that do not exist:\n  {}", wrong.join("\n  "));
    }
    println!("doc: the documents that Rust files name exist ({named} names)");
    Ok(())
}

/// The paths of documents that a Rust file names; patterns with `*` do not count.
fn documents(text: &str) -> Vec<&str> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let paths = text.match_indices(DOCUMENTS).map(|(at, _)| {
        let path = &text[at..];
        path[..path.find(|c| !is_of_path(c)).unwrap_or(path.len())].trim_end_matches('.')
    });
    paths.filter(|path| path.ends_with(".md")).collect()
}

fn check_page(workspace: &Workspace) -> Result<()> {
    let mut named = named(&workspace.read(PAGE)?);
    named.sort();
    named.dedup();
    let tests = named.iter().filter(|named| named.test.is_some()).count();
    ensure!(tests > 0, "{PAGE} names no test (`file::function`) in a table");
    let wrong = complaints(&named, |file| workspace.read(file).ok());
    if !wrong.is_empty() {
        bail!("{PAGE} names what does not exist:\n  {}", wrong.join("\n  "));
    }
    println!("doc: the {} files and tests that {PAGE} names exist ({tests} tests)", named.len());
    Ok(())
}

/// What the tables of a page name.
fn named(page: &str) -> Vec<Named> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let paths = quoted.filter(|quoted| quoted.contains('/') && !quoted.contains(' '));
    let named = paths.map(|path| match path.split_once("::") {
        Some((file, test)) => Named { file: file.into(), test: Some(test.into()) },
        None => Named { file: path.into(), test: None },
    });
    named.collect()
}

/// Why `named` is wrong, given what is in a file if it exists.
fn complaints(named: &[Named], read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let wrong = |Named { file, test }: &Named| match (read(file), test) {
        (None, _) => Some(format!("{file}: no such file")),
        (Some(text), Some(test)) if !text.contains(&format!("fn {test}(")) => {
            Some(format!("{file}: no function {test}"))
        }
        _ => None,
    };
    named.iter().filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str =
        "`not/in/a/table.rs`\n| 1 | `a/b.rs`, `c/d.rs` | `a/t.rs::holds` | `apply` |\n";

    fn read(file: &str) -> Option<String> {
        match file {
            "a/b.rs" | "c/d.rs" => Some(String::new()),
            "a/t.rs" => Some("#[test]\nfn holds() {}\n".into()),
            _ => None,
        }
    }

    #[test]
    fn files_and_tests_of_tables_are_found() {
        let named = named(ROWS);
        let files: Vec<_> = named.iter().map(|named| named.file.as_str()).collect();
        assert_eq!(files, ["a/b.rs", "c/d.rs", "a/t.rs"]);
        assert_eq!(named[2].test.as_deref(), Some("holds"));
        assert_eq!(complaints(&named, read), [""; 0]);
    }

    #[test]
    fn what_is_gone_is_reported() {
        let gone = named("| `a/gone.rs` | `a/t.rs::gone` | `a/t.rs::hold` |");
        let wrong = complaints(&gone, read);
        let expected =
            ["a/gone.rs: no such file", "a/t.rs: no function gone", "a/t.rs: no function hold"];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn documents_of_comments_are_found() {
        // No document that this file would name.
        let text =
            "// See DIR/a.md. `DIR/b/c-1.md`, DIR/d*.md, ../DIR/e.md:3".replace("DIR/", DOCUMENTS);
        let found: Vec<_> = documents(&text).into_iter().map(|path| &path[5..]).collect();
        assert_eq!(found, ["a.md", "b/c-1.md", "e.md"]);
    }

    #[test]
    fn the_pages_and_comments_are_true() {
        check(&Workspace::find().unwrap()).unwrap();
    }
}

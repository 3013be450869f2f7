//! Part of `cargo xtask doc`: every file and every test that docs/thesis.md names exists, so that the
//! page stays true when code moves.
//!
//! In the tables of the page, backquotes around a path with a slash name a file, and `file::function`
//! names a test in it.

use anyhow::{Result, bail, ensure};

use crate::workspace::Workspace;

const PAGE: &str = "docs/thesis.md";

/// A file of the workspace, and perhaps a test in it, that the page names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    file: String,
    test: Option<String>,
}

/// Checks the page.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
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
    fn the_page_of_the_thesis_is_true() {
        check(&Workspace::find().unwrap()).unwrap();
    }
}

//! `cargo xtask unsafe`: `unsafe` is only in the files that ARCHITECTURE.md's ledger lists, every
//! file it lists has some, and every use says why it is sound.
//!
//! The ledger is the table under the heading "Unsafe ledger": a file in backquotes, then what that
//! file must uphold.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};

use crate::unsafety::{self, Kind, Unsafe};
use crate::workspace::Workspace;

const MAP: &str = "ARCHITECTURE.md";
const HEADING: &str = "Unsafe ledger";
/// Everything of ours that is compiled, the measurements, fuzz targets and this program included.
const FOLDERS: [&str; 5] = ["crates", "tools", "xtask", "benchmarks", "fuzz"];

/// The uses of `unsafe` of each file that has any.
type Found = BTreeMap<String, Vec<Unsafe>>;

/// One row of the ledger.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    file: String,
    upholds: String,
}

/// Runs the gate.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let rows = rows(&workspace.read(MAP)?);
    let mut found = Found::new();
    let mut files = 0;
    for folder in FOLDERS {
        for source in workspace.sources(folder)? {
            files += 1;
            let uses = unsafety::scan(&source)?;
            if !uses.is_empty() {
                found.insert(source.path, uses);
            }
        }
    }
    ensure!(!found.is_empty(), "no `unsafe` in {files} files, expected that of the ledger");
    let wrong = complaints(&rows, &found);
    print!("{}", table(&found));
    if !wrong.is_empty() {
        bail!(
            "{} wrong uses of `unsafe` or rows of the ledger:\n  {}",
            wrong.len(),
            wrong.join("\n  ")
        );
    }
    println!("unsafe: in {} of {files} files, all in the ledger, all with a reason", found.len());
    Ok(())
}

/// The rows of the ledger in the text of ARCHITECTURE.md.
fn rows(map: &str) -> Vec<Row> {
    let is_heading = |line: &&str| line.starts_with('#');
    let section = map.lines().skip_while(|line| !(is_heading(line) && line.contains(HEADING)));
    let table = section.skip(1).take_while(|line| !is_heading(line));
    table.filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let (file, rest) = line.trim().strip_prefix('|')?.split_once('|')?;
    let file = file.trim().strip_prefix('`')?.strip_suffix('`')?;
    Some(Row { file: file.into(), upholds: rest.trim_end_matches('|').trim().into() })
}

fn complaints(rows: &[Row], found: &Found) -> Vec<String> {
    let mut wrong = Vec::new();
    if rows.is_empty() {
        wrong.push(format!("{MAP} has no table under a heading \"{HEADING}\""));
    }
    for (at, Row { file, upholds }) in rows.iter().enumerate() {
        if !found.contains_key(file) {
            wrong.push(format!("{MAP} lists {file}, which does not exist or has no `unsafe`"));
        }
        if upholds.split_whitespace().count() < 3 {
            wrong.push(format!("{MAP} does not say what {file} must uphold"));
        }
        if rows[..at].iter().any(|row| row.file == *file) {
            wrong.push(format!("{MAP} lists {file} twice"));
        }
    }
    for (file, uses) in found {
        if !rows.iter().any(|row| row.file == *file) {
            let (line, count) = (uses[0].line, uses.len());
            wrong.push(format!(
                "{file}:{line}: `unsafe` ({count} times), but {MAP} does not list the file"
            ));
        }
        for Unsafe { kind, line, .. } in uses.iter().filter(|u| !u.justified) {
            let remedy = match kind {
                Kind::Function | Kind::Trait => "a `# Safety` section in its documentation",
                _ => "a `// SAFETY:` right above, naming the fact that it relies on",
            };
            wrong.push(format!("{file}:{line}: this {kind} needs {remedy}"));
        }
    }
    wrong
}

fn table(found: &Found) -> String {
    let mut out = String::new();
    let mut line = |file: &str, uses: &[&Unsafe]| {
        let count = |kind| uses.iter().filter(|u| u.kind == kind).count();
        let (blocks, impls, fns) = (count(Kind::Block), count(Kind::Impl), count(Kind::Function));
        let others = uses.len() - blocks - impls - fns;
        let counts = format!("{blocks:>4} blocks {impls:>3} impls {fns:>3} fns {others:>3} others");
        writeln!(out, "{counts}  {file}").expect("writing to a string");
    };
    for (file, uses) in found {
        line(file, &uses.iter().collect::<Vec<_>>());
    }
    line("in all", &found.values().flatten().collect::<Vec<_>>());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP_TEXT: &str = "# Map\n| `no.rs` | not in the ledger |\n## Unsafe ledger\n\nWords.\n\n\
        | File | Must uphold |\n|---|---|\n| `a.rs` | no other code writes |\n\
        | `b.rs` | the stack is mapped |\n\n## Next\n| `c.rs` | not in the ledger |\n";

    fn unsafe_at(line: usize, justified: bool) -> Unsafe {
        Unsafe { kind: Kind::Block, line, justified }
    }

    fn found(files: &[(&str, Unsafe)]) -> Found {
        files.iter().map(|(file, one)| (file.to_string(), vec![*one])).collect()
    }

    #[test]
    fn the_ledger_is_the_table_under_its_heading() {
        let rows = rows(MAP_TEXT);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0], Row { file: "a.rs".into(), upholds: "no other code writes".into() });
    }

    #[test]
    fn listed_and_justified_is_right() {
        let found = found(&[("a.rs", unsafe_at(1, true)), ("b.rs", unsafe_at(2, true))]);
        assert_eq!(complaints(&rows(MAP_TEXT), &found), Vec::<String>::new());
        assert!(table(&found).contains("   2 blocks   0 impls   0 fns   0 others  in all"));
    }

    #[test]
    fn every_way_to_be_wrong_is_reported() {
        let found = found(&[("a.rs", unsafe_at(1, false)), ("d.rs", unsafe_at(7, true))]);
        let wrong = complaints(&rows(MAP_TEXT), &found).join("\n");
        assert!(wrong.contains("lists b.rs, which does not exist or has no `unsafe`"), "{wrong}");
        assert!(wrong.contains("a.rs:1: this block needs a `// SAFETY:`"), "{wrong}");
        assert!(wrong.contains("d.rs:7: `unsafe` (1 times), but"), "{wrong}");

        let twice = "## Unsafe ledger\n| `a.rs` | no other code writes |\n| `a.rs` | |\n";
        let wrong = complaints(&rows(twice), &found).join("\n");
        assert!(wrong.contains("lists a.rs twice"), "{wrong}");
        assert!(wrong.contains("does not say what a.rs must uphold"), "{wrong}");
    }

    #[test]
    fn a_missing_ledger_is_reported() {
        let wrong = complaints(&rows("# Map\n"), &found(&[]));
        assert!(wrong[0].contains("has no table"), "{wrong:?}");
    }
}

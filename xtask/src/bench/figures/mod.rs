//! `cargo xtask bench figures`: writes figures of measurements, from the lists that `--json` writes,
//! into the marked parts of the documents, and draws their plots.
//!
//! ```text
//! <!-- figures: rows core segment- -->
//! what stands here is replaced
//! <!-- figures end -->
//! ```
//! What was not measured stays as it is: each figure of a table of all transports, and each suite of a
//! table of one program's rows. A suite is replaced whole, so give lists of whole suites.
//!
//! | Part | Holds |
//! |---|---|
//! | `rows LIST PREFIX..` | all rows of the suites whose names begin with one of these |
//! | `bars LIST PREFIX..` | those of them that have a bar |
//! | `costs`, `table-2`, `table-3`, `gets` | figures of all transports, and those of 1994 |
//! | `jam-frames`, `jam-latency`, `jam-rate`, `jam-calls`, `jam-loaded`, `jam-waiting` | jams over all transports; all but `jam-calls` with a plot, once it has a figure |
//!
//! Plots are drawn from the tables as they are then in the documents.
//!
//! In reading order: [`list`] (the lists), [`tables`], [`comparisons`] and [`jams`] (what is in the
//! tables of all transports), [`merge`] (what stays of the old ones), [`plot`].

mod comparisons;
mod jams;
mod list;
mod merge;
mod plot;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::list::{Lists, Suite};
use self::merge::Table;

/// The documents that have marked parts.
const DOCUMENTS: [&str; 6] = [
    "docs/figures.md",
    "docs/performance.md",
    "docs/performance-tcp.md",
    "docs/performance-rdma.md",
    "docs/segments.md",
    "docs/performance-jams.md",
];

const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- figures end -->";

/// The lists of the measurements. If a list is given several times, a later one replaces the suites
/// that it has.
#[derive(Args)]
pub(crate) struct Figures {
    /// What `cargo xtask bench core --json` wrote (repeatable)
    #[arg(long, value_name = "FILE")]
    core: Vec<PathBuf>,
    /// What `cargo xtask bench tcp --json` wrote (repeatable)
    #[arg(long, value_name = "FILE")]
    tcp: Vec<PathBuf>,
    /// What `cargo xtask bench rdma --json` wrote (repeatable)
    #[arg(long, value_name = "FILE")]
    rdma: Vec<PathBuf>,
}

/// Refreshes the marked parts of the documents below `root`, and draws the plots.
pub(crate) fn run(root: &Path, figures: &Figures) -> Result<()> {
    let Figures { core, tcp, rdma } = figures;
    let lists = Lists::read([core, tcp, rdma])?;
    refresh(root, &lists)?;
    lists.report().iter().for_each(|line| println!("bench: {line}"));
    Ok(())
}

fn refresh(root: &Path, lists: &Lists) -> Result<()> {
    let mut parts = BTreeMap::new();
    let mut files = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).with_context(|| document.to_owned())?;
        let (text, replaced) = replace(&text, |part, old| {
            let Some(new) = content(lists, part, old)? else {
                parts.insert(part.to_owned(), (old.to_owned(), false));
                return Ok(None);
            };
            let (new, picture) = illustrated(part, new);
            parts.insert(part.to_owned(), (new.clone(), true));
            let folder = Path::new(document).parent().unwrap_or(Path::new(""));
            files.extend(picture.map(|picture| (folder.join(picture.file), picture.svg)));
            Ok(Some(new))
        })
        .with_context(|| format!("{document} was not changed"))?;
        if replaced > 0 {
            println!("bench: {document}: {replaced} parts");
            files.push((document.into(), text));
        }
    }
    ensure!(lists.found() > 0, "no document has a part `{BEGIN}` of what was measured");
    // Of parts of which at least one is new.
    let tables = |names: &[&str]| -> Option<Vec<Table>> {
        let parts = names.iter().map(|name| parts.get(*name)).collect::<Option<Vec<_>>>()?;
        let is_new = parts.iter().any(|(_, is_new)| *is_new);
        let tables = parts.iter().map(|(text, _)| Table::parse(text));
        tables.collect::<Option<Vec<_>>>().filter(|_| is_new)
    };
    if let Some(tables) = tables(&["table-2", "table-3"]) {
        files.push(("docs/segments.svg".into(), comparisons::operations_picture(&tables)));
    }
    if let Some(tables) = tables(&["gets"]) {
        files.push(("docs/gets.svg".into(), comparisons::gets_picture(&tables[0])));
    }
    for (file, content) in files {
        fs::write(root.join(&file), content).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// What is to stand in a part where `old` stands. `None` if nothing of it was measured: it stays as it is.
fn content(lists: &Lists, part: &str, old: &str) -> Result<Option<String>> {
    let found = lists.found();
    let suites = |list: &str, prefixes: &[&str]| -> Vec<Suite> {
        prefixes.iter().flat_map(|prefix| lists.suites(list, prefix)).collect()
    };
    let content = match *part.split(' ').collect::<Vec<_>>() {
        ["rows", list, ref prefixes @ ..] => {
            merge::suites(old, &tables::rows(&suites(list, prefixes)))
        }
        ["bars", list, ref prefixes @ ..] => {
            let new = suites(list, prefixes);
            let names: BTreeSet<String> = new.iter().map(|(name, _)| name.clone()).collect();
            merge::bars(old, &tables::bars(&new), &names)
        }
        ["costs"] => merge::tables(old, &comparisons::costs(lists), 1),
        ["table-2"] => merge::tables(old, &comparisons::table_2(lists), 1),
        ["table-3"] => merge::tables(old, &comparisons::table_3(lists), 1),
        ["gets"] => merge::tables(old, &comparisons::gets(lists), 3),
        ["jam-frames"] => merge::tables(old, &jams::frames(lists), 2),
        ["jam-latency"] => merge::tables(old, &jams::latency(lists), 2),
        ["jam-rate"] => merge::tables(old, &jams::rate(lists), 2),
        ["jam-calls"] => merge::tables(old, &jams::calls(lists), 2),
        ["jam-loaded"] => merge::tables(old, &jams::loaded(lists), 1),
        ["jam-waiting"] => merge::tables(old, &jams::waiting(lists), 1),
        _ => bail!("unknown part `{part}`"),
    };
    Ok((lists.found() > found).then_some(content))
}

/// A part's content with its plot below, if it has one.
fn illustrated(part: &str, content: String) -> (String, Option<jams::Picture>) {
    let picture = Table::parse(&content).and_then(|table| jams::picture(part, &table));
    match picture {
        Some(picture) => {
            let table = content.lines().filter(|line| line.starts_with('|'));
            let table: String = table.map(|line| format!("{line}\n")).collect();
            (format!("{table}\n![{}]({})\n", picture.shows, picture.file), Some(picture))
        }
        None => (content, None),
    }
}

/// The text with every marked part replaced by what `content` returns for it and what stands there, if that
/// returns something; and how many.
fn replace(
    text: &str,
    mut content: impl FnMut(&str, &str) -> Result<Option<String>>,
) -> Result<(String, usize)> {
    let (mut new, mut rest, mut parts) = (String::new(), text, 0);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (part, after) = after.split_once(" -->\n").context("a mark without end of line")?;
        let (old, after) = after.split_once(END).with_context(|| format!("no end of `{part}`"))?;
        new += &format!("{before}{BEGIN}{part} -->\n");
        match content(part, old)? {
            Some(content) => {
                new += &format!("\n{content}\n");
                parts += 1;
            }
            None => new += old,
        }
        new += END;
        rest = after;
    }
    Ok((new + rest, parts))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::list::tests::row;
    use super::*;

    #[test]
    fn only_marked_parts_are_replaced() {
        let text = "a\n<!-- figures: one -->\nold\n<!-- figures end -->\nb\n\
                    <!-- figures: two three -->\n<!-- figures end -->\nc\n";
        let (new, parts) = replace(text, |part, _| Ok(Some(format!("new {part}\n")))).unwrap();
        assert_eq!(parts, 2);
        let expected = "a\n<!-- figures: one -->\n\nnew one\n\n<!-- figures end -->\nb\n\
                        <!-- figures: two three -->\n\nnew two three\n\n<!-- figures end -->\nc\n";
        assert_eq!(new, expected);
        let again = replace(&new, |part, _| Ok(Some(format!("new {part}\n")))).unwrap();
        assert_eq!(again.0, expected);
    }

    #[test]
    fn what_was_not_measured_stays() {
        let text = "<!-- figures: one -->\n\nold\n\n<!-- figures end -->\nb\n";
        assert_eq!(replace(text, |_, _| Ok(None)).unwrap(), (text.to_owned(), 0));
        for part in ["rows core jam-", "bars core counter think-", "jam-rate", "costs", "gets"] {
            assert_eq!(content(&Lists::default(), part, "old").unwrap(), None, "{part}");
        }
    }

    #[test]
    fn a_part_without_an_end_or_of_an_unknown_kind_is_refused() {
        replace("<!-- figures: rows -->\n", |_, _| Ok(None)).unwrap_err();
        let unknown = content(&Lists::default(), "all of them", "").unwrap_err();
        assert!(unknown.to_string().contains("all of them"), "{unknown}");
    }

    /// The documents of this project in a folder of their own, and their plots.
    struct Copied(PathBuf);

    impl Copied {
        fn new(name: &str) -> Copied {
            let name = format!("gossamer-figures-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir_all(root.join("docs")).expect("a folder");
            let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            for document in DOCUMENTS {
                fs::copy(here.join(document), root.join(document)).expect(document);
            }
            Copied(root)
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.0.join(file)).expect(file)
        }

        /// The lines of all documents that lists change: as they were, and as they are then.
        fn changed(&self, lists: &Lists) -> [Vec<String>; 2] {
            let all = || DOCUMENTS.map(|document| self.read(document)).join("");
            let before = all();
            refresh(&self.0, lists).expect("documents");
            let after = all();
            let without = |one: &str, other: &str| {
                let known: BTreeSet<&str> = other.lines().collect();
                one.lines().filter(|line| !known.contains(line)).map(str::to_owned).collect()
            };
            [without(&before, &after), without(&after, &before)]
        }
    }

    impl Drop for Copied {
        fn drop(&mut self) {
            // A folder that stays harms no test.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Lists with these rows of one program.
    fn lists(program: &'static str, rows: &[(&str, &str, f64, &str)]) -> Lists {
        let mut lists = Lists::default();
        let rows = rows.iter().map(|(suite, name, median, unit)| row(suite, name, *median, unit));
        lists.add(program, rows.collect());
        lists
    }

    #[test]
    fn one_suite_changes_nothing_of_others() {
        let copied = Copied::new("one");
        let name = "gossamer/to a process that polls";
        let [old, new] = copied.changed(&lists("core", &[("segment-notify", name, 123.4, "ns")]));
        assert!(new.iter().any(|line| line.contains(name) && line.contains("| 123 |")), "{new:?}");
        assert_eq!(new.len(), 1, "{new:?}");
        let is_old = |line: &String| line.contains("segment-notify") || line.starts_with("| ");
        assert!(old.iter().all(is_old), "{old:?}");
        // What else these suites have had.
        assert!(old.len() < 30, "{old:?}");
    }

    #[test]
    fn figures_of_jams_change_no_figure_of_segments() {
        let copied = Copied::new("jams");
        let unit = "us";
        let case = "gossamer/Indirect Put, 4 KiB";
        let [old, new] = copied.changed(&lists(
            "core",
            &[
                ("jam-shm-loaded", &format!("{case}, alone, median"), 1.25, unit),
                ("jam-shm-loaded", &format!("{case}, alone, 99.9th percentile"), 5.0, unit),
            ],
        ));
        let line = "| Indirect Put, 4 KiB | 1.25 us | 5.00 us | 3.00 |";
        assert!(new.iter().any(|new| new.starts_with(line)), "{new:?}");
        assert!(old.iter().chain(&new).all(|line| !line.contains("segment")), "{old:?}, {new:?}");
        // The plot and its place in the document.
        let link = "(jams-loaded.svg)";
        assert_eq!(copied.read("docs/performance-jams.md").matches(link).count(), 1);
        assert!(copied.read("docs/jams-loaded.svg").contains("Indirect Put, 4 KiB"));
        assert!(!copied.0.join("docs/segments.svg").exists(), "nothing of it was measured");
        // Once more: the same.
        let again = copied.changed(&lists(
            "core",
            &[("jam-shm-loaded", &format!("{case}, alone, median"), 1.25, unit)],
        ));
        assert!(again[1].iter().all(|line| !line.contains("svg")), "{again:?}");
        assert_eq!(copied.read("docs/performance-jams.md").matches(link).count(), 1);
    }

    #[test]
    fn plots_keep_the_figures_of_other_transports() {
        let copied = Copied::new("plots");
        let row = ("segment-tcp-names", "lookup, cached", 70.0, "ns");
        copied.changed(&lists("tcp", &[row]));
        let dots = copied.read("docs/segments.svg").matches(r#"width="8.0""#).count();
        assert!(dots > 30, "{dots} dots");
    }

    #[test]
    fn lists_that_no_document_has_are_refused() {
        let copied = Copied::new("none");
        let error = refresh(&copied.0, &lists("core", &[("nothing", "a", 1.0, "ns")])).unwrap_err();
        assert!(error.to_string().contains("no document"), "{error}");
    }
}

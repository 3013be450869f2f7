//! `cargo xtask bench figures`: writes figures of measurements, from the lists that `--json` writes,
//! into the marked parts of the documents, and draws their plots.
//!
//! ```text
//! <!-- figures: rows core segment- -->
//! what stands here is replaced
//! <!-- figures end -->
//! ```
//! Parts of which nothing was measured stay as they are.
//!
//! | Part | Holds |
//! |---|---|
//! | `rows LIST PREFIX` | all rows of the suites whose names begin so |
//! | `bars LIST PREFIX` | those of them that have a bar |
//! | `costs`, `table-2`, `table-3`, `gets` | figures of all transports, and those of 1994 |
//! | `jam-frames`, `jam-latency`, `jam-rate`, `jam-calls`, `jam-loaded`, `jam-waiting` | jams over all transports |
//!
//! In reading order: [`list`] (the lists), [`tables`], [`comparisons`] and [`jams`] (what is in the
//! tables of all transports), [`plot`].

mod comparisons;
mod jams;
mod list;
mod plot;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::list::Lists;

/// The documents that have marked parts.
const DOCUMENTS: [&str; 5] = [
    "docs/performance.md",
    "docs/performance-tcp.md",
    "docs/performance-rdma.md",
    "docs/segments.md",
    "docs/jams.md",
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

/// Replaces the marked parts of the documents below `root`, and draws the plots.
pub(crate) fn run(root: &Path, figures: &Figures) -> Result<()> {
    let Figures { core, tcp, rdma } = figures;
    let lists = Lists::read([core, tcp, rdma])?;
    let mut replaced = 0;
    for document in DOCUMENTS {
        let path = root.join(document);
        let text = fs::read_to_string(&path).with_context(|| document.to_owned())?;
        let (text, parts) = replace(&text, |part| content(&lists, part))
            .with_context(|| format!("{document} was not changed"))?;
        fs::write(&path, text).with_context(|| document.to_owned())?;
        println!("bench: {document}: {parts} parts");
        replaced += parts;
    }
    ensure!(replaced > 0, "no document has a part `{BEGIN}` of what was measured");
    let pictures = comparisons::pictures(&lists).into_iter().chain(jams::pictures(&lists));
    for (file, picture) in pictures.filter(|(_, picture)| plot::has_dots(picture)) {
        fs::write(root.join(file), picture).with_context(|| file.to_owned())?;
        println!("bench: {file}");
    }
    for missing in lists.missing() {
        println!("bench: not measured: {missing}");
    }
    Ok(())
}

/// What is to stand in a part. `None` if nothing of it was measured: it stays as it is.
fn content(lists: &Lists, part: &str) -> Result<Option<String>> {
    let words = part.split(' ').collect::<Vec<_>>();
    let is_measured = match *words {
        ["rows" | "bars", list, prefix] => !lists.suites(list, prefix).is_empty(),
        ["gets"] => lists.has("get-"),
        [part] if part.starts_with("jam-") => lists.has("jam-"),
        _ => lists.has("segment-"),
    };
    let content = match *words {
        ["rows", list, prefix] => tables::rows(&lists.suites(list, prefix)),
        ["bars", list, prefix] => tables::bars(&lists.suites(list, prefix)),
        ["costs"] => comparisons::costs(lists),
        ["table-2"] => comparisons::table_2(lists),
        ["table-3"] => comparisons::table_3(lists),
        ["gets"] => comparisons::gets(lists),
        ["jam-frames"] => jams::frames(lists),
        ["jam-latency"] => jams::latency(lists),
        ["jam-rate"] => jams::rate(lists),
        ["jam-calls"] => jams::calls(lists),
        ["jam-loaded"] => jams::loaded(lists),
        ["jam-waiting"] => jams::waiting(lists),
        _ => bail!("unknown part `{part}`"),
    };
    Ok(is_measured.then_some(content))
}

/// The text with every marked part replaced by what `content` returns for it, if that returns something;
/// and how many.
fn replace(
    text: &str,
    content: impl Fn(&str) -> Result<Option<String>>,
) -> Result<(String, usize)> {
    let (mut new, mut rest, mut parts) = (String::new(), text, 0);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (part, after) = after.split_once(" -->\n").context("a mark without end of line")?;
        let (old, after) = after.split_once(END).with_context(|| format!("no end of `{part}`"))?;
        new += &format!("{before}{BEGIN}{part} -->\n");
        match content(part)? {
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
    use super::*;

    #[test]
    fn only_marked_parts_are_replaced() {
        let text = "a\n<!-- figures: one -->\nold\n<!-- figures end -->\nb\n\
                    <!-- figures: two three -->\n<!-- figures end -->\nc\n";
        let (new, parts) = replace(text, |part| Ok(Some(format!("new {part}\n")))).unwrap();
        assert_eq!(parts, 2);
        let expected = "a\n<!-- figures: one -->\n\nnew one\n\n<!-- figures end -->\nb\n\
                        <!-- figures: two three -->\n\nnew two three\n\n<!-- figures end -->\nc\n";
        assert_eq!(new, expected);
        let again = replace(&new, |part| Ok(Some(format!("new {part}\n")))).unwrap();
        assert_eq!(again.0, expected);
    }

    #[test]
    fn what_was_not_measured_stays() {
        let text = "<!-- figures: one -->\n\nold\n\n<!-- figures end -->\nb\n";
        assert_eq!(replace(text, |_| Ok(None)).unwrap(), (text.to_owned(), 0));
        for part in ["rows core jam-", "jam-rate", "costs", "gets"] {
            assert_eq!(content(&Lists::default(), part).unwrap(), None, "{part}");
        }
    }

    #[test]
    fn a_part_without_an_end_or_of_an_unknown_kind_is_refused() {
        replace("<!-- figures: rows -->\n", |_| Ok(None)).unwrap_err();
        let unknown = content(&Lists::default(), "all of them").unwrap_err();
        assert!(unknown.to_string().contains("all of them"), "{unknown}");
    }
}

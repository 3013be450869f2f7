//! How new content is put into a part of a document that has figures of earlier runs: what was not measured
//! now stays.
//!
//! - Tables of all transports keep each figure for which the new table has none. Rows are found by what
//!   is in their first columns, and columns by their place, if both tables have the same head.
//! - Tables of one program's rows are replaced suite by suite.

use std::collections::BTreeSet;

/// What stands in a table where nothing was measured.
pub(super) const NOTHING: &str = "–";

/// A table of Markdown: the cells of its lines.
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// The first table of a text.
    pub(super) fn parse(text: &str) -> Option<Table> {
        let lines = text.lines().skip_while(|line| !line.starts_with('|'));
        let mut lines = lines.take_while(|line| line.starts_with('|')).map(cells);
        let head = lines.next()?;
        // Below it is the rule.
        lines.next()?;
        Some(Table { head, rows: lines.collect() })
    }

    fn text(&self) -> String {
        let head = line(&self.head).replace("  ", " ");
        let rule = format!("|{}\n", "---|".repeat(self.head.len()));
        [head, rule].into_iter().chain(self.rows.iter().map(|row| line(row))).collect()
    }
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|');
    let line = line.strip_suffix('|').unwrap_or(line);
    line.split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The new table, with figures of the old one where it has none. The first `keys` columns tell rows apart.
pub(super) fn tables(old: &str, new: &str, keys: usize) -> String {
    let (Some(old), Some(mut table)) = (Table::parse(old), Table::parse(new)) else {
        return new.to_owned();
    };
    if old.head != table.head {
        return new.to_owned();
    }
    for row in &mut table.rows {
        let Some(old) = old.rows.iter().find(|old| old[..keys] == row[..keys]) else { continue };
        for (cell, old) in row.iter_mut().zip(old) {
            // Quotients are empty where nothing was measured.
            if cell == NOTHING || cell.is_empty() {
                cell.clone_from(old);
            }
        }
    }
    table.text()
}

/// The old tables of suites, with those of `suites` replaced by the new ones, and new ones after.
pub(super) fn suites(old: &str, new: &str) -> String {
    let (old, mut new) = (blocks(old), blocks(new));
    let mut all = Vec::new();
    for (suite, text) in old {
        match new.iter().position(|(name, _)| *name == suite) {
            Some(at) => all.push(new.remove(at).1),
            None => all.push(text),
        }
    }
    all.extend(new.into_iter().map(|(_, text)| text));
    all.iter().map(|text| format!("{}\n", text.trim_end())).collect::<Vec<_>>().join("\n")
}

/// The tables of suites, each below a line with its name; what stands in front of them is left out.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        let name = line.strip_prefix("**").and_then(|line| line.strip_suffix("**"));
        if let Some(name) = name {
            blocks.push((name, String::new()));
        }
        if let Some((_, text)) = blocks.last_mut() {
            *text += line;
            *text += "\n";
        }
    }
    blocks
}

/// The old table whose first column names suites, with the lines of `measured` suites replaced by those of
/// the new one, and those of new suites after.
pub(super) fn bars(old: &str, new: &str, measured: &BTreeSet<String>) -> String {
    let (Some(old), Some(new)) = (Table::parse(old), Table::parse(new)) else {
        return new.to_owned();
    };
    if old.head != new.head {
        return new.text();
    }
    let mut left = new.rows;
    let mut rows = Vec::new();
    for row in old.rows {
        if measured.contains(&row[0]) {
            // All new lines of the suite at its first old one.
            let (of_suite, others) = left.into_iter().partition(|other| other[0] == row[0]);
            left = others;
            rows.extend::<Vec<_>>(of_suite);
        } else {
            rows.push(row);
        }
    }
    rows.extend(left);
    Table { head: new.head, rows }.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_were_not_measured_stay() {
        let old =
            "| | a | b | a / b |\n|---|---|---|---|\n| one | 1 | 2 | 0.5 |\n| gone | 1 | 1 | 1 |\n";
        let new =
            "| | a | b | a / b |\n|---|---|---|---|\n| two | 9 | – |  |\n| one | – | – |  |\n";
        let merged =
            "| | a | b | a / b |\n|---|---|---|---|\n| two | 9 | – |  |\n| one | 1 | 2 | 0.5 |\n";
        assert_eq!(tables(old, new, 1), merged);
        let other_head = "| | a | c |\n|---|---|---|\n| one | 7 | 8 |\n";
        assert_eq!(tables(other_head, new, 1), new);
        assert_eq!(tables("nothing", new, 1), new);
    }

    #[test]
    fn only_suites_that_were_measured_are_replaced() {
        let old = "\n**a**\n\nold a\n\n**b**\n\nold b\n\n";
        let new = "**b**\n\nnew b\n\n**c**\n\nnew c\n";
        let merged = "**a**\n\nold a\n\n**b**\n\nnew b\n\n**c**\n\nnew c\n";
        assert_eq!(suites(old, new), merged);
        assert_eq!(suites(merged, ""), merged);
        assert_eq!(suites("Not measured yet.\n", new), new);
    }

    #[test]
    fn bars_of_other_suites_stay() {
        let table = |rows: &[&str]| {
            let rows = rows.iter().map(|row| format!("| {row} |\n")).collect::<String>();
            format!("| suite | case |\n|---|---|\n{rows}")
        };
        let old = table(&["a | old", "b | old 1", "b | old 2", "c | old"]);
        let new = table(&["b | new", "d | new"]);
        let measured = ["b", "c", "d"].map(str::to_owned).into();
        assert_eq!(bars(&old, &new, &measured), table(&["a | old", "b | new", "d | new"]));
        assert_eq!(bars("", &new, &measured), new);
    }
}

//! Slurm's lists of nodes: `login,rack[1-2]n[01-03,7]` stands for nine names. Numbers keep their
//! zeros.

use thiserror::Error;

/// Names that a list may stand for: as many as a cluster has.
const MAX_NAMES: usize = 1 << 16;
/// Digits of a number, zeros included.
const MAX_DIGITS: usize = 20;

/// A list of nodes cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid list of nodes {list:?}: {reason}")]
pub struct NodesError {
    list: String,
    reason: &'static str,
}

/// The names that a list stands for, in its order.
pub(crate) fn expand(list: &str) -> Result<Vec<String>, NodesError> {
    let failed = |reason| NodesError { list: list.chars().take(200).collect(), reason };
    let mut names = Vec::new();
    for entry in entries(list).map_err(failed)? {
        let room = MAX_NAMES - names.len();
        names.extend(expand_entry(entry, room).map_err(failed)?);
    }
    Ok(names)
}

/// The parts between the commas that are not in brackets.
fn entries(list: &str) -> Result<Vec<&str>, &'static str> {
    let (mut entries, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if is_inside => return Err("a bracket inside brackets"),
            '[' => is_inside = true,
            ']' if !is_inside => return Err("a bracket that was not opened"),
            ']' => is_inside = false,
            ',' if !is_inside => {
                entries.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("a bracket that is not closed");
    }
    entries.push(&list[start..]);
    if entries.iter().any(|entry| entry.trim().is_empty()) {
        return Err("an empty name");
    }
    Ok(entries.into_iter().map(str::trim).collect())
}

/// The names of one entry: what stands before a bracket with each number in it, and so on.
fn expand_entry(entry: &str, room: usize) -> Result<Vec<String>, &'static str> {
    let mut names = vec![String::new()];
    let mut rest = entry;
    while let Some((before, behind)) = rest.split_once('[') {
        let Some((inside, behind)) = behind.split_once(']') else {
            return Err("a bracket that is not closed");
        };
        let numbers = numbers(inside, room / names.len())?;
        let joined = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")));
        names = joined.collect();
        rest = behind;
    }
    if names.len() > room {
        return Err("too many names");
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// The numbers of `01-03,7`, as they are written in names; at most `most`.
fn numbers(list: &str, most: usize) -> Result<Vec<String>, &'static str> {
    let mut numbers = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_number = (1..=MAX_DIGITS).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u64>().ok()).flatten().ok_or("not a number")
        };
        let (from, to, width) = (number(first)?, number(last)?, first.len());
        if to < from {
            return Err("a range ends before it begins");
        }
        if to - from >= (most - numbers.len()) as u64 {
            return Err("too many names");
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        for (list, names) in [
            ("vm", "vm"),
            ("n[1-4]", "n1 n2 n3 n4"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("a,b[2,5-6],c", "a b2 b5 b6 c"),
            ("rack[1-2]n[01-02]-ib", "rack1n01-ib rack1n02-ib rack2n01-ib rack2n02-ib"),
        ] {
            let names: Vec<_> = names.split(' ').collect();
            assert_eq!(expand(list).unwrap(), names, "{list}");
        }
    }

    #[test]
    fn malformed_lists_are_refused() {
        for (list, reason) in [
            ("", "empty"),
            ("a,,b", "empty"),
            ("n[1-4", "not closed"),
            ("n1-4]", "not opened"),
            ("n[1[2]]", "inside"),
            ("n[4-1]", "before"),
            ("n[a-b]", "not a number"),
            ("n[]", "not a number"),
            ("n[0-99999999999999999999]", "not a number"),
            ("n[0-18446744073709551615]", "too many"),
            ("n[0-999]n[0-999]", "too many"),
        ] {
            let error = expand(list).unwrap_err();
            assert!(error.reason.contains(reason), "{list}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_list_of_ranges_comes_back(
            prefix in "[a-z][a-z0-9-]{0,8}[a-z]",
            ranges in proptest::collection::vec((0u64..10_000, 0u64..30, 1usize..6), 1..6),
        ) {
            let written: Vec<_> = ranges
                .iter()
                .map(|(first, more, width)| format!("{first:0width$}-{:0width$}", first + more))
                .collect();
            let names = ranges.iter().flat_map(|(first, more, width)| {
                // The width is that of the first number, zeros included.
                let width = *width.max(&first.to_string().len());
                let prefix = &prefix;
                (*first..=first + more).map(move |n| format!("{prefix}{n:0width$}"))
            });
            let expanded = expand(&format!("{prefix}[{}]", written.join(","))).unwrap();
            prop_assert_eq!(expanded, names.collect::<Vec<_>>());
        }

        #[test]
        fn any_text_is_read_or_refused(list in r"[ab0-9,\[\]é -]{0,60}") {
            if let Ok(names) = expand(&list) {
                prop_assert!(!names.is_empty() && names.len() <= MAX_NAMES);
            }
        }
    }
}

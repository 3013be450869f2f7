//! The property file format that YCSB reads: `key=value` lines, comments, continuation lines.
//!
//! Every value keeps its origin, so that errors name file, line and key.

use std::fmt;
use std::str::FromStr;

/// Where a property was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file.
    File {
        /// The name of the file as the user gave it.
        name: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// On the command line, as `-p key=value`.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::CommandLine => f.write_str("command line"),
        }
    }
}

/// An invalid property.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The line is neither empty, nor a comment, nor `key=value`.
    #[error("{origin}: invalid property `{text}`: expected key=value")]
    Syntax {
        /// Where it was set.
        origin: Origin,
        /// The line.
        text: String,
    },
    /// The value is invalid for its key.
    #[error("{origin}: {key}={value}: expected {expected}")]
    Value {
        /// Where it was set.
        origin: Origin,
        /// The property.
        key: String,
        /// The value.
        value: String,
        /// A description of valid values.
        expected: String,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: String,
    origin: Origin,
}

/// The properties of one run: those of a file, then those of the command line. The last assignment
/// to a key wins, as in YCSB.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    entries: Vec<Entry>,
}

impl Properties {
    /// Parses the text of a property file; `name` is the name of the file in messages.
    ///
    /// # Errors
    /// [`PropertyError::Syntax`] for a line without a key or without `=` or `:`.
    pub fn parse(name: &str, text: &str) -> Result<Self, PropertyError> {
        let mut properties = Self::default();
        let mut lines = text.lines().enumerate();
        while let Some((index, first)) = lines.next() {
            let mut logical = first.trim_start().to_owned();
            if logical.starts_with(['#', '!']) {
                continue;
            }
            while logical.ends_with('\\') {
                logical.pop();
                match lines.next() {
                    Some((_, next)) => logical.push_str(next.trim_start()),
                    None => break,
                }
            }
            if logical.trim().is_empty() {
                continue;
            }
            let origin = Origin::File { name: name.to_owned(), line: index + 1 };
            properties.insert(&logical, origin)?;
        }
        Ok(properties)
    }

    /// Adds a `key=value` of the command line, which overrides the file.
    ///
    /// # Errors
    /// [`PropertyError::Syntax`] if there is no key or no `=`.
    pub fn override_with(&mut self, assignment: &str) -> Result<(), PropertyError> {
        self.insert(assignment, Origin::CommandLine)
    }

    /// Sets a property as the command line does.
    pub fn set(&mut self, key: &str, value: impl ToString) {
        let value = value.to_string();
        self.entries.push(Entry { key: key.to_owned(), value, origin: Origin::CommandLine });
    }

    fn insert(&mut self, text: &str, origin: Origin) -> Result<(), PropertyError> {
        let syntax = || PropertyError::Syntax { origin: origin.clone(), text: text.to_owned() };
        let (key, value) = text.split_once(['=', ':']).ok_or_else(syntax)?;
        let key = key.trim();
        if key.is_empty() {
            return Err(syntax());
        }
        let (key, value) = (key.to_owned(), value.trim().to_owned());
        self.entries.push(Entry { key, value, origin });
        Ok(())
    }

    /// The set properties that are not in `known`, each with its origin.
    pub fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a Origin)> {
        self.entries
            .iter()
            .filter(|entry| !known.contains(&entry.key.as_str()))
            .map(|entry| (entry.key.as_str(), &entry.origin))
    }

    /// The value of `key` as a `T`, or `default` if it is not set; `expected` describes valid
    /// values in messages.
    ///
    /// # Errors
    /// [`PropertyError::Value`] if the text is not a `T`, or `accept` returns false.
    pub fn get<T: FromStr>(
        &self,
        key: &str,
        default: T,
        expected: &str,
        accept: impl Fn(&T) -> bool,
    ) -> Result<T, PropertyError> {
        let Some(entry) = self.entries.iter().rev().find(|entry| entry.key == key) else {
            return Ok(default);
        };
        match entry.value.parse() {
            Ok(value) if accept(&value) => Ok(value),
            _ => Err(PropertyError::Value {
                origin: entry.origin.clone(),
                key: key.to_owned(),
                value: entry.value.clone(),
                expected: expected.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(properties: &Properties, key: &str) -> Result<u64, PropertyError> {
        properties.get(key, 7, "a whole number", |_| true)
    }

    #[test]
    fn reads_comments_blank_lines_both_separators_and_continuations() {
        let text = "# one\n! two\n\n a = 1\nb:2\nc=\\\n  3\nd=4\\";
        let properties = Properties::parse("w", text).unwrap();
        for (key, value) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("missing", 7)] {
            assert_eq!(number(&properties, key), Ok(value), "{key}");
        }
    }

    #[test]
    fn the_last_assignment_wins_and_the_command_line_comes_last() {
        let mut properties = Properties::parse("w", "a=1\na=2").unwrap();
        assert_eq!(number(&properties, "a"), Ok(2));
        properties.override_with("a=3").unwrap();
        assert_eq!(number(&properties, "a"), Ok(3));
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let error = Properties::parse("my/file", "a=1\nnonsense").unwrap_err();
        assert_eq!(error.to_string(), "my/file:2: invalid property `nonsense`: expected key=value");
        let mut properties = Properties::parse("my/file", "\n\na=many").unwrap();
        let error = number(&properties, "a").unwrap_err();
        assert_eq!(error.to_string(), "my/file:3: a=many: expected a whole number");
        properties.override_with("a=-1").unwrap();
        let error = number(&properties, "a").unwrap_err();
        assert_eq!(error.to_string(), "command line: a=-1: expected a whole number");
        assert!(properties.override_with("=1").is_err());
    }

    #[test]
    fn unknown_properties_are_listed_with_their_origin() {
        let properties = Properties::parse("w", "a=1\nb=2").unwrap();
        let unknown: Vec<_> = properties.unknown(&["a"]).collect();
        assert_eq!(unknown, [("b", &Origin::File { name: "w".into(), line: 2 })]);
    }
}

//! [`Name`]: the validated name of a segment or a trust.
//!
//! A name is stored in a registry entry as it is (`table/entry.rs`). Its bytes are printable and
//! have no meaning to a shell or a terminal, so messages and tools print it unescaped.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use primitive::limits::NAME_BYTES;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A valid name: 1 to 64 bytes of ASCII letters, digits, `.`, `-`, `_` and `/`.
///
/// Slashes have no meaning to the registry; programs use them to group names.
///
/// ```
/// use gossamer_segment::Name;
/// let name = Name::new("prices/eur-usd")?;
/// assert_eq!(name.to_string(), "prices/eur-usd");
/// assert_eq!(
///     Name::new("prices of today").unwrap_err().to_string(),
///     "invalid name \"prices of today\": ' ' at byte 6 is not allowed; use ASCII letters, digits, \
///      '.', '-', '_' and '/'"
/// );
/// # Ok::<(), gossamer_segment::InvalidName>(())
/// ```
// Derived `Ord` is that of the strings: no valid byte is zero, so a prefix sorts first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name {
    /// Zero behind the name.
    bytes: [u8; Name::MAX_LEN],
    len: u8,
}

impl Name {
    /// The most bytes of a name.
    pub const MAX_LEN: usize = NAME_BYTES;

    /// Validates `name`.
    ///
    /// # Errors
    /// If it is empty, too long, or contains anything but the characters that are allowed.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let len = name.len();
        if len == 0 {
            return Err(InvalidName::Empty);
        }
        if len > Self::MAX_LEN {
            return Err(InvalidName::TooLong { start: name.chars().take(SHOWN).collect(), len });
        }
        if let Some(at) = name.bytes().position(|byte| !is_allowed(byte)) {
            // All in front of it are ASCII, so it begins a character.
            let character = name[at..].chars().next().unwrap_or_default();
            return Err(InvalidName::Character { name: name.into(), character, at });
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..len].copy_from_slice(name.as_bytes());
        Ok(Self { bytes, len: len as u8 })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).expect("a name is ASCII")
    }

    /// The bytes of the name.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The bytes of the name, and zeroes behind it.
    #[inline]
    pub(crate) fn padded(&self) -> &[u8; Self::MAX_LEN] {
        &self.bytes
    }
}

// Without the zeroes behind it: most names have a quarter of the most bytes.
impl Hash for Name {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Whether a name may contain `byte`.
#[inline]
fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'/')
}

/// The characters that a message shows of a name that is too long.
const SHOWN: usize = 16;

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl TryFrom<&str> for Name {
    type Error = InvalidName;

    fn try_from(name: &str) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::new(&name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().into()
    }
}

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum InvalidName {
    /// It has no characters.
    #[error(
        "invalid name \"\": use 1 to {} ASCII letters, digits, '.', '-', '_' and '/'",
        Name::MAX_LEN
    )]
    Empty,
    /// It has too many bytes.
    #[error("invalid name \"{}...\" of {len} bytes: use at most {}", start.escape_debug(), Name::MAX_LEN)]
    TooLong {
        /// How it starts.
        start: String,
        /// Its length in bytes.
        len: usize,
    },
    /// It has a character that is not allowed.
    #[error(
        "invalid name {name:?}: {character:?} at byte {at} is not allowed; use ASCII letters, \
         digits, '.', '-', '_' and '/'"
    )]
    Character {
        /// The text.
        name: String,
        /// The first character that is not allowed.
        character: char,
        /// Where it is.
        at: usize,
    },
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_are_checked() {
        assert_eq!(Name::new("a").expect("a name").as_str(), "a");
        let longest = "n".repeat(Name::MAX_LEN);
        assert_eq!(Name::new(&longest).expect("a name").as_str(), longest);
        let message = |name: &str| Name::new(name).expect_err("no name").to_string();
        assert_eq!(
            message(""),
            "invalid name \"\": use 1 to 64 ASCII letters, digits, '.', '-', '_' and '/'"
        );
        assert_eq!(
            message(&format!("a\n{}", "b".repeat(63))),
            "invalid name \"a\\nbbbbbbbbbbbbbb...\" of 65 bytes: use at most 64"
        );
        assert!(message(&"\u{e9}".repeat(33)).contains("of 66 bytes"));
    }

    #[test]
    fn exactly_the_documented_characters_are_allowed() {
        let allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_/";
        for character in ('\0'..='\u{17f}').chain(['\u{ff41}', '\u{1f600}']) {
            let name = format!("n{character}");
            assert_eq!(Name::new(&name).is_ok(), allowed.contains(character), "{name:?}");
        }
        let error = Name::new("a\u{1b}[2J").expect_err("no name").to_string();
        assert!(!error.contains(char::is_control), "a message that controls a terminal: {error:?}");
    }

    #[test]
    fn a_name_is_formatted_as_its_text() {
        let name: Name = "a/b".parse().expect("a name");
        assert_eq!(format!("{name} {name:?} {name:>5}"), "a/b \"a/b\"   a/b");
        assert_eq!(Name::try_from("a/b"), Ok(name));
    }

    proptest! {
        #[test]
        fn names_are_equal_and_ordered_as_their_texts(texts in proptest::collection::btree_set("[ab./_-]{1,5}|[a-z]{64}", 1..20)) {
            let names: BTreeSet<Name> =
                texts.iter().map(|text| Name::new(text).expect("a name")).collect();
            prop_assert!(names.iter().map(Name::as_str).eq(texts.iter().map(String::as_str)));
        }

        #[test]
        fn any_text_is_a_name_or_refused(text in ".{0,80}") {
            if let Ok(name) = Name::new(&text) {
                prop_assert_eq!(name.as_str(), text);
            }
        }
    }
}

//! The types of the functions of a package, as text: what its authors wrote.
//!
//! Receivers compare hashes of types. The text is for people: `gossamer jam inspect` and errors show
//! it. It stays in the package; what travels with a call does not have it. A line for each function,
//! in UTF-8:
//!
//! ```text
//! 0 entry indirect_put (&mut Table, PutArgs, &[u8]) -> i64
//! 0 import table_slot (&mut Table, u64) -> u64
//! 1 export index_find (&mut Index, u64) -> i64
//! ```
//!
//! A line has the id of the element, the kind, the name and the types, with a space between them. Lines
//! are sorted by the first three, and no two have the same.

use std::fmt;

use crate::{ElementKind, MAX_TYPES_BYTES, PackageError, TableEntry};

/// The length of the longest line, in bytes.
const MAX_LINE_BYTES: usize = 4096;

/// What a function is to the element of a package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionKind {
    /// The jam itself.
    Entry,
    /// A function that a ried offers.
    Export,
    /// A function that a jam or ried needs.
    Import,
}

impl FunctionKind {
    /// The word in the text.
    const fn word(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Export => "export",
            Self::Import => "import",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Entry, Self::Export, Self::Import].into_iter().find(|kind| kind.word() == word)
    }
}

/// A function with the text of its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionTypes<'a> {
    /// The element of the package that has it.
    pub id: u16,
    /// What it is to that.
    pub kind: FunctionKind,
    /// Its name.
    pub name: &'a str,
    /// Its parameters in parentheses, and its result if it has one: `(&mut Table, u64) -> u64`.
    pub types: &'a str,
}

impl fmt::Display for FunctionTypes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fn {}{}", self.name, self.types)
    }
}

/// A function of a package to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewFunction<'a> {
    /// The name of its element.
    pub element: &'a str,
    /// What it is to that.
    pub kind: FunctionKind,
    /// Its name.
    pub name: &'a str,
    /// As [`FunctionTypes::types`].
    pub types: &'a str,
}

/// The functions of a package, or of one of its elements, whose text has been checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types<'a>(&'a str);

impl<'a> Types<'a> {
    /// Checks the text of a package with these elements.
    pub(crate) fn parse(bytes: &'a [u8], entries: &[TableEntry<'_>]) -> Result<Self, PackageError> {
        let wrong = |line, expected| PackageError::Types { line, expected };
        let text = str::from_utf8(bytes).map_err(|_| wrong(1, "text in UTF-8"))?;
        let mut before = None;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let wrong = |expected| wrong(index + 1, expected);
            let whole = line.strip_suffix('\n').filter(|line| line.len() < MAX_LINE_BYTES);
            let whole = whole.ok_or_else(|| wrong("a line of at most 4096 bytes"))?;
            let expected = "an element's id, a kind, a name and types, with a space between them";
            let function = function(whole).ok_or_else(|| wrong(expected))?;
            let FunctionTypes { id, kind, name, .. } = function;
            // Entries are sorted by their ids.
            let of = entries.get(entries.partition_point(|entry| entry.id < id));
            let of = of.filter(|entry| entry.id == id);
            let of = of.ok_or_else(|| wrong("the id of an element"))?;
            let fits = match kind {
                FunctionKind::Entry => of.kind == ElementKind::Jam && of.name == name,
                FunctionKind::Export => of.kind == ElementKind::Ried,
                FunctionKind::Import => true,
            };
            if !fits {
                return Err(wrong("an entry of a jam, an export of a ried or an import"));
            }
            if before.is_some_and(|before| before >= (id, kind, name)) {
                return Err(wrong("lines that are sorted, no two of one function"));
            }
            before = Some((id, kind, name));
        }
        Ok(Self(text))
    }

    /// Its functions, sorted by id, kind and name.
    pub fn functions(&self) -> impl Iterator<Item = FunctionTypes<'a>> + use<'a> {
        functions_in(self.0)
    }

    /// Those of the element with this id.
    pub fn of_element(&self, id: u16) -> Self {
        let mut start = 0;
        let mut end = 0;
        for line in self.0.split_inclusive('\n') {
            match function(line.trim_end()).map(|function| function.id.cmp(&id)) {
                Some(std::cmp::Ordering::Less) => start += line.len(),
                Some(std::cmp::Ordering::Equal) => end += line.len(),
                _ => break,
            }
        }
        Self(&self.0[start..start + end])
    }

    /// The first function of this kind and name.
    pub fn find(&self, kind: FunctionKind, name: &str) -> Option<FunctionTypes<'a>> {
        self.functions().find(|function| function.kind == kind && function.name == name)
    }

    /// The text, to keep it: [`functions_in`] reads it again.
    pub const fn text(&self) -> &'a str {
        self.0
    }
}

/// The functions of a text that [`Types::text`] has returned. Lines of other text are passed over.
pub fn functions_in(text: &str) -> impl Iterator<Item = FunctionTypes<'_>> {
    text.lines().filter_map(function)
}

/// Whether a character changes how the text around it is laid out: a control character, a separator of
/// lines or a mark of direction. No text of types has any.
pub fn is_layout(character: char) -> bool {
    let is_mark = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_mark || character.is_control()
}

/// The function of a line, which has one encoding.
fn function(line: &str) -> Option<FunctionTypes<'_>> {
    let (number, rest) = line.split_once(' ')?;
    let (kind, rest) = rest.split_once(' ')?;
    let (name, types) = rest.split_once(' ')?;
    let id: u16 = number.parse().ok()?;
    let is_number = number == "0" || !number.starts_with(['0', '+']);
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_types = types.starts_with('(') && !types.contains(is_layout);
    let kind = FunctionKind::from_word(kind)?;
    (is_number && is_name && is_types).then_some(FunctionTypes { id, kind, name, types })
}

/// The text of functions, whose elements have these names and ids. It is for people, so it lacks what
/// has no line, and what is beyond its largest length.
pub(crate) fn encode(
    functions: &[NewFunction<'_>],
    id_of: impl Fn(&str) -> Option<u16>,
) -> Result<String, PackageError> {
    let expected = "functions of elements of the package";
    let mut functions = functions
        .iter()
        .map(|f| Some((id_of(f.element)?, f.kind, f.name, f.types)))
        .collect::<Option<Vec<_>>>()
        .ok_or(PackageError::Types { line: 1, expected })?;
    functions.sort_unstable();
    functions.dedup_by_key(|(id, kind, name, _)| (*id, *kind, *name));
    let mut text = String::new();
    for (id, kind, name, types) in functions {
        let line = format!("{id} {} {name} {types}", kind.word());
        // A name with a space would be read as another one.
        let is_read = function(&line).is_some_and(|f| (f.name, f.types) == (name, types));
        if is_read && line.len() < MAX_LINE_BYTES && text.len() + line.len() < MAX_TYPES_BYTES {
            text.push_str(&line);
            text.push('\n');
        }
    }
    Ok(text)
}

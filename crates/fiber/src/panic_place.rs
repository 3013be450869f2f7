//! [`PanicPlace`]: where a caught panic was raised.

use std::fmt;

/// The place in the source where a caught panic was raised.
///
/// It prints as `FILE:LINE:COLUMN`, as the standard message of a panic does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PanicPlace {
    /// The source file, as the compiler was given it.
    pub file: Box<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl fmt::Display for PanicPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PanicPlace { file, line, column } = self;
        write!(f, "{file}:{line}:{column}")
    }
}

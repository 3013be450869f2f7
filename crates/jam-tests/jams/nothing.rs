//! Does nothing.

/// Nothing.
pub fn nothing() {}

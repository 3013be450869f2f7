//! [`Fault`]: why a value cannot be encoded or decoded, as serde asks for it.

use std::fmt;

use primitive::limits::NESTING;
use serde::{de, ser};

use crate::error::CodecError;

/// A codec error. Boxed, so that the results that every step returns stay small.
#[derive(Debug)]
pub(super) struct Fault(Box<CodecError>);

impl Fault {
    #[cold]
    #[inline(never)]
    pub(super) fn new(message: String) -> Self {
        Fault(Box::new(CodecError(message)))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn too_deep() -> Self {
        Self::new(format!(
            "the value is nested more than {NESTING} levels deep: send a flat form of it, for \
             example a `Vec` of nodes that refer to each other by index"
        ))
    }
}

impl From<Fault> for CodecError {
    #[cold]
    fn from(fault: Fault) -> Self {
        *fault.0
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Fault {}

impl ser::Error for Fault {
    #[cold]
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

impl de::Error for Fault {
    #[cold]
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

//! What can go wrong with a jam.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where a jam panicked, and what it said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{message}")]
pub struct Panicked {
    /// The message, if it is a literal; else only what kind of panic it was.
    pub message: String,
}

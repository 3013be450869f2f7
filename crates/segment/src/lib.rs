//! Named remote memory.
//!
//! [`Record`]: values larger than a word that are never torn.

#![forbid(unsafe_code)]

mod record;

pub use crate::record::{Record, RecordWriter, Torn};

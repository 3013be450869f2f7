//! Named remote memory: segments, names for them, and notifications, over any transport.

#![forbid(unsafe_code)]

#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzzing;
mod name;
pub mod table;

pub use crate::name::{InvalidName, Name};

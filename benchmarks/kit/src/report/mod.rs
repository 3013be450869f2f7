//! The report of a run: rows in JSON for programs, a table for readers.

mod rows;
mod table;

pub use rows::{Row, rows};
pub use table::{absences, failures, raw, table};

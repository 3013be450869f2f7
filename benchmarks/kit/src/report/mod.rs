//! What a run says: rows for machines, a table for people.

mod rows;
mod table;

pub use rows::{Row, rows};
pub use table::{absences, failures, raw, table};

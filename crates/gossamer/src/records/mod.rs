//! [`ShardedRecords`]: a map of plain data, sharded over the rack, whose values any host reads by one
//! READ or by delegation.
//!
//! In reading order: `error.rs` ([`RecordsError`]), `bytes.rs` (plain data as an argument),
//! `sharded.rs`.

mod bytes;
mod error;
mod sharded;

pub use self::error::RecordsError;
pub use self::sharded::{ReadMode, ShardedRecords};

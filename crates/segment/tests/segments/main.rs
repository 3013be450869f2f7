//! What segments do beyond the suite of `conformance`, over shared memory and TCP: access that changes,
//! notifications, records, and hosts that keep no rule. One program, since each that stands on the same
//! crates costs as much to link.

#![cfg(not(loom))]

mod access;
mod basics;
mod callbacks;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod not_quiet;
mod notification_flow;
mod notifications;
mod record_shm;
mod records;
mod untaken_answers;

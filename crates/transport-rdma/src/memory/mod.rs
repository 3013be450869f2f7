//! Memory that devices reach: where it comes from.
//!
//! - [`pages`]: huge pages, where the system has some.
//! - [`pool`]: what regions, staging memory and sleep flags are cut from.

#[allow(unsafe_code, reason = "the only module that maps memory; see the ledger")]
pub(crate) mod pages;
pub(crate) mod pool;

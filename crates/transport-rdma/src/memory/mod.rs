//! Memory that devices reach: where this host's comes from, and how that of others is named.
//!
//! - [`pages`]: huge pages, where the system has some.
//! - [`pool`]: what regions, staging memory and sleep flags are cut from.
//! - [`remote`]: memory of another host.

#[allow(unsafe_code, reason = "the only module that maps memory; see the ledger")]
pub(crate) mod pages;
pub(crate) mod pool;
pub(crate) mod remote;

//! Delegated closures: which may be delegated, how they are named, and how a trustee runs one.

#[allow(unsafe_code)] // Makes closures without bytes from their type.
pub(crate) mod ahead;
pub(crate) mod batch;
#[allow(unsafe_code)] // Runs a closure on a property behind a pointer.
pub(crate) mod call;
#[allow(unsafe_code)] // Rebuilds closures from their bytes.
pub(crate) mod capture;
pub(crate) mod context;
#[allow(unsafe_code)] // Reads the loaded program.
pub(crate) mod identity;
pub(crate) mod invoke;
#[allow(unsafe_code)] // Runs a closure on a property behind a pointer.
pub(crate) mod lent;
#[cfg(feature = "nightly")]
pub(crate) mod noref;
#[allow(unsafe_code)] // Copies values as bytes.
pub(crate) mod plain_bytes;
#[allow(unsafe_code)] // Runs a call on a property behind a pointer.
pub(crate) mod plain_call;
pub(crate) mod plain_run;
#[allow(unsafe_code)] // Reads the table that the linker makes.
pub(crate) mod registry;

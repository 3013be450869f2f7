//! Delegated closures: what may be delegated, how closures are named, and how a trustee runs one.

#[allow(unsafe_code)] // Rebuilds closures from their bytes.
pub(crate) mod call;
pub(crate) mod context;
#[allow(unsafe_code)] // Reads the loaded program.
pub(crate) mod identity;
pub(crate) mod invoke;
#[cfg(feature = "nightly")]
pub(crate) mod noref;
#[allow(unsafe_code)] // Reads the table that the linker makes.
pub(crate) mod registry;

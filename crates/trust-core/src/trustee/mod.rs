//! The trustee's side of a pair of threads: requests in, replies out, and the properties that they
//! work on.

pub(crate) mod count;
#[allow(unsafe_code)] // Runs closures on properties.
pub(crate) mod inbox;
#[allow(unsafe_code)] // Signals are looked at past their inboxes.
pub(crate) mod inboxes;
#[allow(unsafe_code)] // Properties of any type are in one table.
pub(crate) mod property;

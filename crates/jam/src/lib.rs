//! Code that travels: jams are verified, linked and run where they arrive.

#![deny(unsafe_code)]

#[cfg(not(loom))]
#[allow(unsafe_code)]
mod arena;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod enter;
#[cfg(not(loom))]
mod error;
#[doc(hidden)]
pub mod reuse;

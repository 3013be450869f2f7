//! What a *ried* is written with: functions for jams, in a shared library that a program has loaded
//! into running processes.
//!
//! A ried is a crate of type `cdylib` in a folder of its own, `jams/NAME/Cargo.toml`, whose package is
//! called as the folder. It depends on this crate, and on no other one of Gossamer: the program into
//! which it is loaded has those already, with values that a second copy would not see. `jam-build`
//! builds it; `jam::load_ried` sends it to a host.
//!
//! ```
//! # mod prices {
//! ried::property! {
//!     /// The shop of the program.
//!     pub struct Shop = "docs.Shop@1";
//! }
//!
//! ried::interface! {
//!     import {
//!         /// A function of the program.
//!         fn base_price(shop: &mut Shop, article: u64) -> u64;
//!     }
//!     export {
//!         /// The price of some pieces, for jams.
//!         pub fn price(shop: &mut Shop, article: u64, pieces: u64) -> u64 {
//!             let full = base_price(shop, article) * pieces;
//!             if pieces >= 12 { full - full / 10 } else { full }
//!         }
//!     }
//!     start = begin;
//! }
//!
//! fn begin(host: &ried::Host) -> Result<(), String> {
//!     host.log("prices by the dozen");
//!     Ok(())
//! }
//! # }
//! ```
//!
//! # Panics
//!
//! A ried has a standard library of its own, and unwinding does not cross from one to another. So a
//! panic ends at its border: destructors in the ried run, then its caller gets the panic as one of the
//! program. A panic of an imported function continues in the ried as one of its own, and keeps its
//! message.
//!
//! # Reading order
//!
//! `host.rs` ([`Host`]), `border.rs` (calls and panics that cross), `start.rs`, `interface.rs`
//! ([`interface!`]).

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod border;
#[allow(unsafe_code)]
mod host;
mod interface;
#[allow(unsafe_code)]
mod start;

#[doc(hidden)]
pub use border::{caught, escape, host_call, imported, raise};
pub use host::{Host, host};
pub use jam_abi::{Abi, AbiResult, Plain, Pointee, Property, plain, property, signature};
#[doc(hidden)]
pub use jam_abi::{
    Failure, HostTable, MAX_PLAIN_ALIGN, Opaque, RIED_VERSION, RiedData, RiedExport, RiedImport,
    abi_by_value, function_signature, record, record_bytes,
};
#[doc(hidden)]
pub use start::start;

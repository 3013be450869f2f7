//! What a *ried* is written with: functions for jams, in a shared library that a program has loaded
//! into running processes.
//!
//! A ried is a crate of type `cdylib` in a folder of its own, `jams/NAME/Cargo.toml`; its package has the
//! folder's name. It depends on this crate, and on no other crate of Gossamer: the program that loads it
//! has those already, and a second copy would have statics of its own. `jam-build` builds it;
//! `jam::load_ried` sends it to a host.
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
//! A ried has its own standard library, and unwinding cannot cross from one standard library to another.
//! So a panic is caught at the boundary: destructors in the ried run, then the panic resumes in its
//! caller. A panic of an imported function resumes in the ried in the same way, and keeps its message.
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
    abi_by_value, function_signature, function_types, record, record_bytes,
};
#[doc(hidden)]
pub use start::start;

//! What a jam is compiled against: the types that may cross its border, and the layout of a call.
//!
//! # Reading order
//!
//! 1. `signature.rs` (hashes of types and functions), `call.rs` ([`Call`], [`Context`]).

#![no_std]

mod call;
pub mod signature;

pub use call::{Call, Context, ContextData, Entry, LogFn, code};

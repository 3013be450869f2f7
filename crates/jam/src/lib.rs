//! Code that travels: jams are verified, linked and run where they arrive, and sent to properties of
//! any host.
//!
//! A *jam* is one function, in a file of its own, that `jam-build` compiles twice: to a blob of
//! position-independent code, the *Injected Function*, and as part of the program, the *Local
//! Function*. The program sends it to a property, a value that a trust refers to; the trustee's
//! process runs it there, even if that process was built without it. This crate has both sides, the
//! sender and the receiver. `docs/jams.md` shows how a program uses it, from its dependencies on.
//!
//! ```no_run
//! // In the crate of the property:
//! pub struct Table { slots: Vec<u64> }
//! jam::open! { Table = "shop.Table@1"; }
//! jam::export! {
//!     pub fn table_slot(table: &mut Table, key: u64) -> u64 {
//!         table.slots[key as usize % table.slots.len()]
//!     }
//! }
//!
//! // In the program that sends a jam, with a constant of its package: `&jams::price::PRICE`.
//! use jam::{Inject, JamError, Sendable};
//! # use trust_core::Trust;
//! fn price<J>(table: &Trust<Table>, price: &J, key: u64) -> Result<u64, JamError>
//! where
//!     J: Sendable<Args = u64, Element = (), Reply = u64>,
//! {
//!     table.inject(price, key, &[])
//! }
//! ```
//!
//! # Whose code runs
//!
//! A jam runs inside the receiver's process and can do everything that the process can. So a receiver
//! runs only what its [`Policy`] admits: by default the jams of the program's own packages
//! ([`package!`]), those of packages that a signer of the rack has signed ([`Verifier`]), and those that
//! the program has [admitted](Receiver::admit). `docs/decisions/0035-jams.md` explains why.
//!
//! # Reading order
//!
//! 1. `error.rs` ([`JamError`], [`Refusal`]), `features.rs`, `policy.rs` ([`Policy`]).
//! 2. `reuse/` (when nothing runs in memory any more; the protocol and its barriers), `arena/`
//!    (executable memory), `enter/` (calling a jam, and leaving it early).
//! 3. `symbols/` ([`export!`], [`open!`], [`Symbols`]), `package.rs` ([`package!`]), `local.rs`.
//! 4. `frame.rs`, `link.rs`, `handles.rs`, `cache.rs`: from bytes that arrived to a jam that can run.
//! 5. `plain_bytes.rs`, `sender.rs` ([`Sendable`], [`LoadedJam`]), `loaded.rs` ([`Package`]),
//!    `arrived.rs` ([`ArrivedPackage`], brought by `gossamer jam send`).
//! 6. `log.rs`, `ried/` (libraries that are loaded into the process).
//! 7. `audit.rs` ([`AuditEntry`]), `receiver.rs` ([`Receiver`], [`packages`]), `receiver/running.rs`,
//!    `inject.rs` ([`Inject`]), `inject/by_handle.rs`, `load.rs` ([`load_ried`]).
//! 8. [`mailbox`]: jams that run as they arrive in memory, without a trustee. `send.rs` ([`offer`]):
//!    jams that send work on.

#![deny(unsafe_code)]

#[cfg(not(loom))]
#[allow(unsafe_code)]
mod arena;
#[cfg(not(loom))]
mod arrived;
#[cfg(not(loom))]
mod audit;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod cache;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod enter;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod features;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod handles;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod inject;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod link;
#[cfg(not(loom))]
mod load;
#[cfg(not(loom))]
mod loaded;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod local;
#[cfg(not(loom))]
mod log;
#[cfg(not(loom))]
pub mod mailbox;
#[cfg(not(loom))]
mod package;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod plain_bytes;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod receiver;
#[doc(hidden)]
pub mod reuse;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod ried;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod send;
#[cfg(not(loom))]
mod sender;
#[cfg(not(loom))]
mod shape;
#[cfg(not(loom))]
mod symbols;

#[doc(no_inline)]
pub use jam_abi::Jam;
pub use jam_abi::{
    Abi, AbiResult, Context, Plain, Pointee, Property, import, plain, property, scratch, signature,
};
#[doc(hidden)]
pub use jam_abi::{
    Call, ContextData, Element, Entry, ImportSlot, LocalEntry, LocalFunction, LocalImport,
    PackageData, RiedElement, Slice, abi_by_value, code, entry, function_signature, function_types,
    imported_result,
};
#[doc(no_inline)]
pub use jam_format::{Digest, Proof};

#[cfg(not(loom))]
#[doc(hidden)]
pub use self::frame::check_machine;
#[cfg(not(loom))]
pub use self::{
    arrived::ArrivedPackage,
    audit::{AuditEntry, AuditEvent},
    error::{JamError, Panicked, Refusal, SignatureHash},
    inject::Inject,
    load::{RemoteRied, RiedSource, load_ried},
    loaded::{Package, PackageError},
    log::Log,
    policy::{Origin, Policy, Verifier},
    receiver::{Receiver, on_package, packages, receiver},
    ried::error::{RiedError, RiedRefusal},
    send::{NameOffered, Offer, offer, send_then, sent},
    sender::{Code, InMode, LoadedJam, Mode, Sendable},
    symbols::export::{Export, Open, PropertyType, exports, guard, property_type},
    symbols::{LoadedFunction, Symbols},
};

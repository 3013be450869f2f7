//! What a jam is compiled against: the types that may cross its border, and the layout of a call.
//!
//! A jam is one function that runs at a receiver. From one source come its two forms:
//!
//! - the *Injected Function*: jam-build compiles the file by itself, with `--cfg jam_injected` and
//!   this crate under the name `jam`, and links a blob of it. Its imports are undefined symbols;
//! - the *Local Function*: the file is a module of a program, in which `jam` is the crate of the
//!   receiver, which shows the same items under the same names. Its imports are slots
//!   ([`LocalImport`]) that the receiver fills.
//!
//! ```
//! # mod get {
//! # use gossamer_jam_abi as jam;
//! jam::plain! {
//!     /// Which entry is read.
//!     pub struct GetArgs { pub key: u64 }
//! }
//!
//! jam::property! {
//!     /// The receiver's table.
//!     pub struct Table = "bench.Table@1";
//! }
//!
//! jam::import! {
//!     /// The entry of a key.
//!     fn table_get(table: &Table, key: u64) -> i64;
//! }
//!
//! /// A jam is named as its file, which is `get.rs`.
//! pub fn get(table: &Table, args: GetArgs) -> i64 {
//!     table_get(table, args.key)
//! }
//! # }
//! ```
//!
//! An import is safe to call: the receiver resolves it by name and compares the [signature], a hash of
//! its parameter and result types, before the jam is entered.
//!
//! # Reading order
//!
//! 1. `signature.rs` (hashes of types and functions), `types.rs` ([`Plain`], [`Property`], [`Abi`]),
//!    `references.rs` ([`Slice`]), `declare.rs` ([`plain!`], [`property!`]).
//! 2. `import.rs` (imports, of both forms), `call.rs` ([`Call`], [`Context`]), `entry.rs` (what a
//!    generated entry does).
//! 3. `scratch.rs` (the property of a jam that is not trusted), `panicking.rs` (panics of an Injected
//!    Function), `local.rs` (what a package shows of a jam in the program that sends it).
//! 4. `ried.rs` (what receivers and rieds know of each other).
//!
//! It uses only `core`: a user's build compiles [`SOURCES`] with a bare rustc.

#![no_std]

mod call;
mod declare;
pub mod entry;
mod import;
#[cfg(not(jam_injected))]
mod local;
#[cfg(jam_injected)]
mod panicking;
mod references;
#[cfg(not(jam_injected))]
mod ried;
mod scratch;
pub mod signature;
mod types;

pub use call::{Call, Context, ContextData, Entry, LogFn, code};
pub use import::{ENTRY_SECTION, IMPORT_SECTION, record, record_bytes};
#[cfg(not(jam_injected))]
pub use import::{ImportSlot, LocalImport};
#[cfg(not(jam_injected))]
pub use local::{Element, Jam, LocalEntry, LocalFunction, PackageData, RiedElement};
pub use references::Slice;
#[cfg(not(jam_injected))]
pub use ried::{
    Failure, HostTable, RIED_EXPORT_SECTION, RIED_IMPORT_SECTION, RIED_OLDEST, RIED_STARTED,
    RIED_SYMBOL, RIED_VERSION, RiedData, RiedExport, RiedImport,
};
pub use scratch::{SCRATCH, ScratchData, scratch};
#[doc(hidden)]
pub use types::Opaque;
pub use types::{Abi, AbiResult, MAX_PLAIN_ALIGN, Plain, Pointee, Property};

/// The sources of this crate, each with its path from the folder of `lib.rs`: for builds of jams
/// where only the compiled crate is.
#[cfg(not(jam_injected))]
pub const SOURCES: &[(&str, &str)] = &[
    ("lib.rs", include_str!("lib.rs")),
    ("call.rs", include_str!("call.rs")),
    ("declare.rs", include_str!("declare.rs")),
    ("entry.rs", include_str!("entry.rs")),
    ("import.rs", include_str!("import.rs")),
    ("panicking.rs", include_str!("panicking.rs")),
    ("references.rs", include_str!("references.rs")),
    ("scratch.rs", include_str!("scratch.rs")),
    ("signature.rs", include_str!("signature.rs")),
    ("types.rs", include_str!("types.rs")),
];

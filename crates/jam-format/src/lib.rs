//! The formats of code that travels: what a jam is as bytes, and how a receiver checks them.
//!
//! A *jam* is one function, compiled and linked into a position-independent *blob*: machine code,
//! read-only data, the imports that the receiver resolves, and the relocations that it applies. This
//! crate only reads and writes bytes. It does no I/O, knows no thread, and has no `unsafe`.
//!
//! Everything that it reads is a peer's claim: [`Parsed`] contains only ranges and values that have
//! been checked, and an error says what is wrong with the bytes. No input makes it panic.
//!
//! ```
//! use gossamer_jam_format::{Blob, Digest, Machine, Parsed};
//!
//! let bytes = Blob { name: "answer", text: &[0xc3], ..Blob::new(Machine::X86_64) }.encode()?;
//! let parsed = Parsed::parse(&bytes)?;
//! assert_eq!((parsed.name(), parsed.text()), ("answer", &[0xc3][..]));
//! assert_eq!(Digest::of(&bytes), Digest::of(parsed.bytes()));
//! # Ok::<(), gossamer_jam_format::BlobError>(())
//! ```
//!
//! # Reading order
//!
//! 1. `machine.rs` (processors and their features), `digest.rs`.
//! 2. `blob/`: the layout, then `parse.rs`, then `write.rs`.
//! 3. `library.rs`: shared libraries, as rieds are.
//! 4. `table.rs`: what a package consists of; `types.rs`: the types of its functions as text;
//!    `package.rs`: files with several elements; `signature.rs`: who answers for them.

#![forbid(unsafe_code)]

mod blob;
mod digest;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod library;
mod machine;
mod package;
mod package_error;
mod signature;
mod table;
mod types;

pub use blob::{
    ARENA_UNIT, Blob, BlobError, DATA_DISTANCE, ELEMENT_LIMIT, HEADER_BYTES, Import, MAX_ALIGN,
    MAX_ARGS_BYTES, MAX_BLOB_BYTES, MAX_REPLY_BYTES, NameKind, Parsed, Relocation, SLOT_BYTES,
};
pub use digest::Digest;
pub use library::{Library, LibraryError};
pub use machine::{Features, Machine, UnknownFeature};
pub use package::{
    NewElement, Package, PackageElement, encode_package, encode_typed_package, sign_package,
};
pub use package_error::{MAX_PACKAGE_BYTES, MAX_TYPES_BYTES, PackageError};
pub use signature::{Algorithm, MAX_PROOF_BYTES, MAX_PROVEN_BYTES, Proof, Signature, split_proof};
pub use table::{ElementKind, Table, TableEntry};
pub use types::{FunctionKind, FunctionTypes, NewFunction, Types, functions_in, is_layout};

//! Builds code that travels: compiles jams, links each into a blob, and packs them into a package.
//!
//! A jam is one function in a file of its own, named as the file: `jams/NAME.rs` in Rust (see the
//! crate `jam` for what it may use), or `jams/NAME.c` in C with the `jam.h` that this crate has. In a
//! build script,
//!
//! ```no_run
//! jam_build::package("jams")?;
//! # Ok::<(), jam_build::Error>(())
//! ```
//!
//! writes `jams.jampkg` to `OUT_DIR`, and `jams.rs`, which the program includes: for each jam its
//! typed sender, its Local Function and its public types.
//!
//! A ried is a crate in a folder, `jams/NAME/Cargo.toml` (see the crate `ried`), which cargo builds as a
//! shared library, or `jams/NAME/NAME.c`; it goes into the same package.
//!
//! What a jam may not have is an error with symbol, file and line: statics that can change,
//! thread-locals, imports that it does not declare, code that is not position-independent, an entry
//! with other types than it may have, more code than a blob may have.
//!
//! Only build scripts and tools depend on this crate: receivers need no compiler and no linker.
//!
//! # Reading order
//!
//! 1. `error.rs` ([`Error`], [`Site`]).
//! 2. `source.rs` (what a Rust source says), `c_types.rs`, `generate.rs` (generated Rust),
//!    `depfile.rs`, `compile.rs` (the compilers), `c_local.rs` (Local Functions in C).
//! 3. `lines.rs`, `objects.rs`, `records.rs`: what the compilers made.
//! 4. `link/`: from there to a blob.
//! 5. `library.rs` ([`Interface`]), `ried.rs`, `c_ried.rs`: rieds.
//! 6. `folder.rs`, `builder.rs` ([`Builder`]), `script.rs` ([`package()`]).
//! 7. `elf.rs`, `disassemble.rs` ([`disassemble()`]).

#![forbid(unsafe_code)]

mod builder;
mod c_local;
mod c_ried;
mod c_types;
mod compile;
mod depfile;
mod disassemble;
mod elf;
mod error;
mod folder;
mod generate;
mod library;
mod lines;
mod link;
mod objects;
mod records;
mod ried;
mod script;
mod source;

pub use builder::{Builder, BuiltJam, BuiltPackage};
pub use disassemble::disassemble;
pub use error::{Error, Site};
pub use library::{Interface, RiedFunction};
pub use ried::BuiltRied;
pub use script::package;

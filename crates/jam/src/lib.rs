//! Code that travels: jams are verified, linked and run where they arrive.

#![deny(unsafe_code)]

#[cfg(not(loom))]
#[allow(unsafe_code)]
mod arena;
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
#[allow(unsafe_code)]
mod inject;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod link;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod local;
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
mod sender;
#[cfg(not(loom))]
mod symbols;

#[doc(no_inline)]
pub use jam_abi::Jam;
pub use jam_abi::{
    Abi, AbiResult, Context, Plain, Pointee, Property, import, plain, property, signature,
};
#[doc(hidden)]
pub use jam_abi::{
    Call, ContextData, Element, Entry, LocalEntry, LocalFunction, LocalImport, PackageData, Slice,
    abi_by_value, code, entry, function_signature, imported_result,
};
pub use jam_format::Digest;

#[cfg(not(loom))]
pub use self::{
    error::{JamError, Panicked, Refusal},
    inject::Inject,
    package::{Package, PackageError},
    policy::Policy,
    receiver::{Log, Receiver, receiver},
    sender::{Code, InMode, LoadedJam, Mode, Sendable},
    symbols::export::{Export, Open, PropertyType, exports, guard, property_type},
    symbols::{LoadedFunction, Symbols},
};

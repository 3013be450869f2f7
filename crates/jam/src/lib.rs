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
#[cfg(not(loom))]
mod symbols;

pub use jam_abi::{
    Abi, AbiResult, Context, Plain, Pointee, Property, import, plain, property, signature,
};
#[doc(hidden)]
pub use jam_abi::{
    Call, ContextData, Element, Entry, LocalEntry, LocalFunction, LocalImport, PackageData, Slice,
    abi_by_value, code, entry, function_signature, imported_result,
};

#[cfg(not(loom))]
pub use self::{
    error::{JamError, Panicked, Refusal},
    symbols::export::{Export, Open, PropertyType, exports, guard, property_type},
    symbols::{LoadedFunction, Symbols},
};
#[doc(no_inline)]
pub use jam_abi::Jam;

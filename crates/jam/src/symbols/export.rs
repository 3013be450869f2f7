//! What a program offers to jams: functions ([`export!`](crate::export)) and types of properties
//! ([`open!`](crate::open)), each a record in a section that the linker collects.
//!
//! ```text
//!   __start_gossamer_jam_exports                       __stop_gossamer_jam_exports
//!   | Export | Export | ...
//!   __start_gossamer_jam_properties                    __stop_gossamer_jam_properties
//!   | PropertyType | ...
//! ```
//!
//! A function has two addresses. Injected code does not unwind, so what it calls catches its panics
//! and leaves the jam ([`guard`]); through a Local Function, in Rust or C, a panic unwinds.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use jam_abi::Pointee;

use crate::enter::escape;
use crate::error::Panicked;

/// A function that jams can import.
#[derive(Debug)]
#[repr(C)]
pub struct Export {
    name: &'static str,
    signature: u64,
    types: &'static str,
    injected: *const (),
    local: *const (),
}

// SAFETY: addresses of functions.
unsafe impl Sync for Export {}

impl Export {
    /// The function of this name and signature; `types` is their text.
    ///
    /// # Safety
    /// `injected` is an `extern "C"` function of that signature that does not unwind, and `local` an
    /// `extern "C-unwind"` one that may.
    pub const unsafe fn new(
        name: &'static str,
        signature: u64,
        types: &'static str,
        injected: *const (),
        local: *const (),
    ) -> Self {
        Self { name, signature, types, injected, local }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The hash of its types.
    pub fn signature(&self) -> u64 {
        self.signature
    }

    /// Its types as text, such as `(&mut Table, u64) -> u64`.
    pub fn types(&self) -> &'static str {
        self.types
    }

    pub(super) fn addresses(&self) -> (usize, usize) {
        (self.injected.addr(), self.local.addr())
    }
}

/// The type of a property that jams can work on, under the name that its crate gives it. Implemented
/// by [`open!`](crate::open).
///
/// # Safety
/// No other type of the program has this name, and the type's [`Pointee::SIGNATURE`] is that of a
/// property of this name.
#[diagnostic::on_unimplemented(
    message = "jams cannot work on `{Self}`: its type is not open to them",
    label = "not a property that jams know",
    note = "name the type with `jam::open! {{ Type = \"crate.Type@1\"; }}` in the crate that defines it; \
            wrap a type of another crate in a struct of your own: `struct Numbers(Vec<u64>);`"
)]
pub unsafe trait Open: Pointee + 'static {
    /// The name, such as `kv.Shard@3`: change the number after the `@` when functions of the type
    /// change their meaning.
    const NAME: &'static str;
}

/// An opened type of property.
#[derive(Debug)]
#[repr(C)]
pub struct PropertyType {
    name: &'static str,
    type_id: fn() -> TypeId,
}

impl PropertyType {
    /// The record of `T`.
    pub const fn of<T: Open>() -> Self {
        Self { name: T::NAME, type_id: TypeId::of::<T> }
    }
}

// SAFETY: the linker defines these symbols as the bounds of the sections of those names, which exist
// because the `global_asm!` below makes them; only their addresses are used.
unsafe extern "C" {
    #[link_name = "__start_gossamer_jam_exports"]
    static EXPORTS: [usize; 0];
    #[link_name = "__stop_gossamer_jam_exports"]
    static EXPORTS_END: [usize; 0];
    #[link_name = "__start_gossamer_jam_properties"]
    static PROPERTIES: [usize; 0];
    #[link_name = "__stop_gossamer_jam_properties"]
    static PROPERTIES_END: [usize; 0];
}

// SAFETY: makes the sections exist, empty, even in a program that offers nothing; no code, no data.
std::arch::global_asm!(
    ".pushsection gossamer_jam_exports,\"awR\",@progbits",
    ".p2align 3",
    ".popsection",
    ".pushsection gossamer_jam_properties,\"awR\",@progbits",
    ".p2align 3",
    ".popsection",
);

/// What the program exports.
pub fn exports() -> &'static [Export] {
    // SAFETY: the bounds of a section that holds only records of `export!`, since a program has one
    // release of this crate (`links` in the manifest).
    unsafe { records(&raw const EXPORTS, &raw const EXPORTS_END) }
}

/// Checks that no two types of properties have one name.
///
/// # Panics
/// If two have.
pub(crate) fn check_property_types() {
    property_type("");
}

/// The type of property that the program has opened under `name`.
///
/// # Panics
/// If it has opened two types under one name.
pub fn property_type(name: &str) -> Option<TypeId> {
    static TYPES: OnceLock<HashMap<&'static str, TypeId>> = OnceLock::new();
    let types = TYPES.get_or_init(|| {
        let mut types = HashMap::new();
        // SAFETY: as in `exports`, of `open!`.
        for record in unsafe { records(&raw const PROPERTIES, &raw const PROPERTIES_END) } {
            let PropertyType { name, type_id } = record;
            let other = types.insert(*name, type_id());
            assert!(
                other.is_none_or(|other| other == type_id()),
                "two types of properties have the name {name:?}: each needs one of its own"
            );
        }
        types
    });
    types.get(name).copied()
}

/// # Safety
/// The bounds of a section that holds records of `T`, without gaps, never written.
#[allow(clippy::disallowed_methods, reason = "the linker's table, which no peer can write")]
unsafe fn records<T>(start: *const [usize; 0], end: *const [usize; 0]) -> &'static [T] {
    let count = (end.addr() - start.addr()) / size_of::<T>();
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(start.cast::<T>(), count) }
}

/// Runs a function of the program for injected code: a panic leaves the jam that called it.
#[doc(hidden)]
#[inline]
pub fn guard<R>(run: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(payload) => leave(payload),
    }
}

/// Leaves the jam that called a function with this panic. Apart, since what it keeps in registers is
/// otherwise saved by every call.
#[cold]
#[inline(never)]
fn leave(payload: Box<dyn Any + Send>) -> ! {
    escape(Panicked::of_payload(payload))
}

/// Offers functions to jams, under their names and with the signature of their types, which are
/// [`Abi`](crate::Abi).
///
/// If such a function panics, the jam that called it ends, and its sender gets the message, file and line; so it does
/// if a jam in C passes text that is not UTF-8, without a call of the function. A jam runs in delegated
/// context, where the function must not wait.
///
/// ```
/// pub struct Table { slots: Vec<u64> }
/// jam::open! { Table = "store.Table@1"; }
///
/// jam::export! {
///     /// The slot of a key.
///     pub fn table_slot(table: &mut Table, key: u64) -> u64 {
///         table.slots[key as usize % table.slots.len()]
///     }
/// }
/// # let mut table = Table { slots: vec![7] };
/// assert_eq!(table_slot(&mut table, 3), 7);
/// assert!(jam::exports().iter().any(|export| export.name() == "table_slot"));
/// ```
///
/// A function cannot keep what it gets longer than its call:
///
/// ```compile_fail,E0597
/// jam::export! {
///     fn keep(word: &'static u64) {}
/// }
/// ```
#[macro_export]
macro_rules! export {
    ($(
        $(#[$meta:meta])* $visibility:vis
        fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        $visibility fn $name($($parameter: $type),*) $(-> $result)? $body

        #[allow(
            unsafe_code,
            unused_variables,
            improper_ctypes_definitions,
            clippy::unused_unit
        )]
        const _: () = {
            /// # Safety
            /// The parameters are of `into_repr` of these types.
            unsafe extern "C" fn injected(
                $($parameter: <$type as $crate::Abi>::Repr),*
            ) -> $crate::export_repr!($($result)?) {
                // SAFETY: the jam's import has the signature of this function.
                $crate::guard(|| unsafe { local($($parameter),*) })
            }

            /// # Safety
            /// The parameters are of `into_repr` of these types.
            unsafe extern "C-unwind" fn local(
                $($parameter: <$type as $crate::Abi>::Repr),*
            ) -> $crate::export_repr!($($result)?) {
                // A jam in C may pass any bytes as text.
                $(
                    // SAFETY: the caller's promise.
                    let is_value = unsafe { <$type as $crate::Abi>::is_value(&$parameter) };
                    assert!(
                        is_value,
                        "parameter {:?} of {:?} is not text in UTF-8: the jam must check it",
                        stringify!($parameter),
                        stringify!($name),
                    );
                )*
                // References live as long as this local value at most: signatures do not cover lifetimes.
                #[allow(clippy::let_unit_value, unused_variables)]
                let call = ();
                // SAFETY: the caller was compiled with the same types, by its signature; what is text is
                // UTF-8.
                #[allow(unused_unsafe)]
                let result = unsafe {
                    $name($(<$type as $crate::Abi>::from_call($parameter, &call)),*)
                };
                $crate::Abi::into_repr(result)
            }

            #[used]
            // SAFETY: a section of records of this type, which the crate `jam` reads.
            #[unsafe(link_section = "gossamer_jam_exports")]
            // SAFETY: both functions take and return these types.
            static EXPORT: $crate::Export = unsafe {
                $crate::Export::new(
                    stringify!($name),
                    $crate::function_signature!(($($type),*) $(-> $result)?),
                    $crate::function_types!(($($type),*) $(-> $result)?),
                    injected as *const (),
                    local as *const (),
                )
            };
        };
    )*};
}

/// How a function's result is passed.
#[doc(hidden)]
#[macro_export]
macro_rules! export_repr {
    () => {
        ()
    };
    ($result:ty) => {
        <$result as $crate::Abi>::Repr
    };
}

/// Gives types of properties the names under which jams know them. It implements traits for them, so
/// each type is one of the calling crate: wrap one of another crate in a struct of your own
/// (`struct Numbers(Vec<u64>);`).
///
/// ```
/// pub struct Shard { entries: u64 }
/// jam::open! { Shard = "kv.Shard@3"; }
/// assert_eq!(jam::property_type("kv.Shard@3"), Some(std::any::TypeId::of::<Shard>()));
/// ```
#[macro_export]
macro_rules! open {
    ($($type:ty = $name:literal;)*) => {$(
        #[allow(unsafe_code)]
        const _: () = {
            // SAFETY: the receiver checks that no other type has this name before it runs any jam.
            unsafe impl $crate::Pointee for $type {
                const SIGNATURE: u64 = $crate::signature::of_property($name);
            }
            // SAFETY: the receiver checks that no other type has this name before it runs any jam.
            unsafe impl $crate::Open for $type {
                const NAME: &'static str = $name;
            }
            #[used]
            // SAFETY: a section of records of this type, which the crate `jam` reads.
            #[unsafe(link_section = "gossamer_jam_properties")]
            static PROPERTY: $crate::PropertyType = $crate::PropertyType::of::<$type>();
        };
    )*};
}

#[cfg(test)]
mod tests {
    use jam_abi::{Call, Slice};

    use super::*;

    #[derive(Debug)]
    struct Counter(u64);

    crate::open! { Counter = "test.Counter@1"; }

    crate::export! {
        fn test_add(counter: &mut Counter, by: u64) -> u64 {
            counter.0 += by;
            counter.0
        }

        fn test_sum(bytes: &[u8]) -> u64 {
            bytes.iter().map(|byte| u64::from(*byte)).sum()
        }

        fn test_nothing() {}

        fn test_chars(text: &str) -> u64 {
            text.chars().count() as u64
        }
    }

    /// A jam in C, which passes its arguments as text.
    ///
    /// # Safety
    /// `call` is one.
    unsafe extern "C" fn passes_its_arguments(call: *mut Call) -> u32 {
        let export = exports().iter().find(|export| export.name() == "test_chars").unwrap();
        // SAFETY: a function of this signature, as the record says.
        let chars: unsafe extern "C" fn(Slice<u8>) -> u64 =
            unsafe { std::mem::transmute(export.addresses().0) };
        // SAFETY: the test's call has as many bytes.
        unsafe { chars(Slice::new((*call).args.cast_mut(), (*call).args_len)) as u32 }
    }

    #[test]
    fn bytes_that_are_no_text_end_the_jam_that_passes_them() {
        let run = |args: &[u8]| {
            // SAFETY: pointers and numbers, for all of which zero is a value.
            let mut call = unsafe { std::mem::zeroed::<Call>() };
            call.args = args.as_ptr();
            call.args_len = args.len();
            // SAFETY: it uses of the call only the arguments, and does not wait.
            unsafe { crate::enter::run(passes_its_arguments, &mut call) }
        };
        assert_eq!(run("größe".as_bytes()), Ok(5));
        let message = run(b"gr\xf6\xdfe").unwrap_err().message;
        assert!(message.contains("\"text\" of \"test_chars\" is not text in UTF-8"), "{message}");
        assert_eq!(run(b""), Ok(0));
    }

    #[test]
    fn exports_are_found_with_their_signatures() {
        let found = |name| exports().iter().find(|export| export.name() == name).unwrap();
        let u64_hash = crate::signature::of_name("u64");
        let counter = crate::signature::of("&mut", crate::signature::of_property("test.Counter@1"));
        let expected = crate::signature::of_function(&[counter, u64_hash], u64_hash);
        assert_eq!(found("test_add").signature(), expected);
        assert_ne!(found("test_sum").signature(), found("test_nothing").signature());
        let mut counter = Counter(3);
        let (injected, local) = found("test_add").addresses();
        for address in [injected, local] {
            // SAFETY: a function of this signature, as the record says.
            let add: unsafe extern "C" fn(*mut Counter, u64) -> u64 =
                unsafe { std::mem::transmute(address) };
            // SAFETY: as above; the counter is alive.
            unsafe { add(&raw mut counter, 2) };
        }
        assert_eq!(test_add(&mut counter, 0), 7);
        assert_eq!(test_sum(&[1, 2]), 3);
        test_nothing();
    }

    #[test]
    fn property_types_are_found_by_name() {
        assert_eq!(property_type("test.Counter@1"), Some(TypeId::of::<Counter>()));
        assert_eq!(property_type("test.Counter@2"), None);
    }
}

//! Imports: functions of the receiver, which a jam declares and calls as if they were its own.
//!
//! For an Injected Function each is an undefined symbol, and a record in a section that the linker
//! of jams reads and drops. For a Local Function each is a slot that the receiver fills.

#[cfg(not(jam_injected))]
use core::sync::atomic::{AtomicPtr, Ordering};

/// The section with a [`record`] of each import, of an object with a jam.
pub const IMPORT_SECTION: &str = ".jam.imports";
/// The section with a record of the entry, of an object with a jam.
pub const ENTRY_SECTION: &str = ".jam.entry";

/// The length of a [`record`], in bytes.
pub const fn record_bytes(name: &str, types: &str) -> usize {
    RECORD_NAME + name.len() + types.len()
}

/// Where the name is in a [`record`].
pub(crate) const RECORD_NAME: usize = 8 + 2 + 2;

/// What an object says about one import: signature (u64), lengths of the name and of the text of the
/// types (u16 each), name, types ([`function_types!`](crate::function_types)). Little-endian, without
/// gaps.
///
/// # Panics
/// If `N` is not [`record_bytes`].
pub const fn record<const N: usize>(signature: u64, name: &str, types: &str) -> [u8; N] {
    assert!(N == record_bytes(name, types) && name.len() < 1 << 16 && types.len() < 1 << 16);
    let mut bytes = [0; N];
    let at = put(&mut bytes, 0, &signature.to_le_bytes());
    let at = put(&mut bytes, at, &(name.len() as u16).to_le_bytes());
    let at = put(&mut bytes, at, &(types.len() as u16).to_le_bytes());
    let at = put(&mut bytes, at, name.as_bytes());
    put(&mut bytes, at, types.as_bytes());
    bytes
}

const fn put(bytes: &mut [u8], at: usize, part: &[u8]) -> usize {
    let mut index = 0;
    while index < part.len() {
        bytes[at + index] = part[index];
        index += 1;
    }
    at + part.len()
}

/// Declares functions of the receiver, with types that are [`Abi`](crate::Abi). A file has one
/// `import!`, with all of its imports, outside of modules and functions.
///
/// They are safe to call. Receiver and jam compare their types before the jam runs; a receiver that
/// lacks one rejects the jam, with the name of the import.
///
/// ```
/// gossamer_jam_abi::import! {
///     /// The receiver's hash of a key.
///     fn hash(key: u64) -> u64;
///     fn store(bytes: &[u8]);
/// }
/// ```
#[cfg(jam_injected)]
#[macro_export]
macro_rules! import {
    ($(
        $(#[$meta:meta])* $visibility:vis
        fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {$(
        $(#[$meta])*
        #[inline(always)]
        $visibility fn $name($($parameter: $type),*) $(-> $result)? {
            const NAME: &str = stringify!($name);
            const SIGNATURE: u64 = $crate::function_signature!(($($type),*) $(-> $result)?);
            const TYPES: &str = $crate::function_types!(($($type),*) $(-> $result)?);
            #[used]
            // SAFETY: the section is of data that nothing runs or changes; it is read as bytes.
            #[unsafe(link_section = ".jam.imports")]
            static RECORD: [u8; $crate::record_bytes(NAME, TYPES)] =
                $crate::record(SIGNATURE, NAME, TYPES);
            // SAFETY: the receiver has compared the signature of the function that it puts here.
            #[allow(improper_ctypes)]
            unsafe extern "C" {
                fn $name(
                    $($parameter: <$type as $crate::Abi>::Repr),*
                ) $(-> <$result as $crate::Abi>::Repr)?;
            }
            // SAFETY: the receiver has compared the signature, so its function takes and returns
            // these types.
            #[allow(unused_unsafe)]
            unsafe {
                $crate::imported_result!(
                    $name($(<$type as $crate::Abi>::into_repr($parameter)),*) $(, $result)?
                )
            }
        }
    )*};
}

/// Declares functions of the receiver, with types that are [`Abi`](crate::Abi). A file has one
/// `import!`, with all of its imports, outside of modules and functions.
///
/// They are safe to call. Receiver and jam compare their types before the jam runs; a receiver that
/// lacks one rejects the jam, with the name of the import.
///
/// ```
/// gossamer_jam_abi::import! {
///     /// The receiver's hash of a key.
///     fn hash(key: u64) -> u64;
///     fn store(bytes: &[u8]);
/// }
/// ```
///
/// A result borrows nothing, since signatures do not cover lifetimes:
///
/// ```compile_fail,E0277
/// gossamer_jam_abi::import! {
///     fn first(bytes: &[u8]) -> &u8;
/// }
/// ```
#[cfg(not(jam_injected))]
#[macro_export]
macro_rules! import {
    ($(
        $(#[$meta:meta])* $visibility:vis
        fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {
        /// The slots of this jam's imports, which a receiver fills.
        #[doc(hidden)]
        #[allow(missing_docs, non_upper_case_globals, unreachable_pub, unused_imports)]
        pub mod jam_imports {
            use super::*;

            $(
                pub static $name: $crate::LocalImport = {
                    static SLOT: $crate::ImportSlot = $crate::ImportSlot::new(::core::ptr::null_mut());
                    $crate::LocalImport::new(
                        stringify!($name),
                        $crate::function_signature!(($($type),*) $(-> $result)?),
                        &SLOT,
                    )
                };
            )*

            pub static ALL: &[&$crate::LocalImport] = &[$(&$name),*];
        }

        $(
            $(#[$meta])*
            #[inline(always)]
            #[allow(unsafe_code)]
            $visibility fn $name($($parameter: $type),*) $(-> $result)? {
                type Function = unsafe extern "C-unwind" fn(
                    $(<$type as $crate::Abi>::Repr),*
                ) $(-> <$result as $crate::Abi>::Repr)?;
                // SAFETY: who filled the slot has compared the signature, so its function takes and
                // returns these types.
                #[allow(unused_unsafe)]
                unsafe {
                    let function = ::core::mem::transmute::<*mut (), Function>(
                        jam_imports::$name.address(),
                    );
                    $crate::imported_result!(
                        function($(<$type as $crate::Abi>::into_repr($parameter)),*) $(, $result)?
                    )
                }
            }
        )*
    };
}

/// The signature of a function with these parameters and this result.
#[doc(hidden)]
#[macro_export]
macro_rules! function_signature {
    (($($type:ty),*)) => { $crate::function_signature!(($($type),*) -> ()) };
    (($($type:ty),*) -> $result:ty) => {{
        const fn is_result<T: $crate::AbiResult>() -> u64 {
            <T as $crate::Abi>::SIGNATURE
        }
        $crate::signature::of_function(
            &[$(<$type as $crate::Abi>::SIGNATURE),*],
            is_result::<$result>(),
        )
    }};
}

/// The text of these parameters and this result, as their author wrote them, for people.
#[doc(hidden)]
#[macro_export]
macro_rules! function_types {
    (($($type:ty),*)) => { stringify!(($($type),*)) };
    (($($type:ty),*) -> $result:ty) => { stringify!(($($type),*) -> $result) };
}

/// What an import has returned.
#[doc(hidden)]
#[macro_export]
macro_rules! imported_result {
    ($call:expr) => {
        $call
    };
    ($call:expr, $result:ty) => {
        <$result as $crate::Abi>::from_repr($call)
    };
}

/// The place for the address of a function: null until the receiver fills it.
#[cfg(not(jam_injected))]
pub type ImportSlot = AtomicPtr<()>;

/// An import of a Local Function.
#[cfg(not(jam_injected))]
pub struct LocalImport {
    name: &'static str,
    signature: u64,
    /// Elsewhere, since that of a jam in C is in the object which a C compiler has made.
    slot: &'static ImportSlot,
}

#[cfg(not(jam_injected))]
impl LocalImport {
    /// The import with this name and signature, whose calls go to the address in `slot`.
    pub const fn new(name: &'static str, signature: u64, slot: &'static ImportSlot) -> Self {
        Self { name, signature, slot }
    }

    /// The name of the function.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The hash of its types.
    pub const fn signature(&self) -> u64 {
        self.signature
    }

    /// Whether the slot is filled.
    pub fn is_resolved(&self) -> bool {
        !self.slot.load(Ordering::Acquire).is_null()
    }

    /// Fills the slot.
    ///
    /// # Safety
    /// `address` is that of an `extern "C"` function with this signature (`extern "C-unwind"` if it
    /// may panic), which stays callable as long as the jam may call it.
    pub unsafe fn resolve(&self, address: *const ()) {
        self.slot.store(address.cast_mut(), Ordering::Release);
    }

    /// The address of the function.
    ///
    /// # Panics
    /// If the slot is empty.
    #[inline(always)]
    pub fn address(&self) -> *mut () {
        let address = self.slot.load(Ordering::Acquire);
        if address.is_null() {
            self.panic_unresolved()
        }
        address
    }

    #[cold]
    #[inline(never)]
    fn panic_unresolved(&self) -> ! {
        panic!("import `{}` of a jam is not resolved: call the jam through its package", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{signature, types::Pointee};

    crate::import! {
        /// Adds.
        fn add(first: u64, second: &[u8]) -> u64;
        fn nothing();
    }

    extern "C" fn real_add(first: u64, second: crate::Slice<u8>) -> u64 {
        first + second.len as u64
    }

    #[test]
    fn a_filled_slot_is_called() {
        let [add_slot, nothing_slot] = jam_imports::ALL else { panic!("two imports") };
        assert_eq!((add_slot.name(), nothing_slot.name()), ("add", "nothing"));
        let bytes = signature::of("&[]", u8::SIGNATURE);
        let expected = signature::of_function(&[u64::SIGNATURE, bytes], u64::SIGNATURE);
        assert_eq!(add_slot.signature(), expected);
        assert_eq!(nothing_slot.signature(), signature::of_function(&[], signature::UNIT));
        assert!(!add_slot.is_resolved());
        // SAFETY: it has these types, and is never unloaded.
        unsafe { add_slot.resolve(real_add as *const ()) };
        assert!(add_slot.is_resolved());
        assert_eq!(add(5, &[0; 3]), 8);
    }

    #[test]
    #[should_panic(expected = "import `nothing` of a jam is not resolved")]
    fn an_empty_slot_panics() {
        nothing();
    }

    #[test]
    fn a_record_has_no_gaps() {
        const TYPES: &str = crate::function_types!((&mut [u8], u64) -> u64);
        assert_eq!(TYPES, "(&mut [u8], u64) -> u64");
        assert_eq!(crate::function_types!(()), "()");
        let bytes: [u8; record_bytes("ab", "()")] = record(1, "ab", "()");
        assert_eq!(bytes, *b"\x01\0\0\0\0\0\0\0\x02\0\x02\0ab()");
    }
}

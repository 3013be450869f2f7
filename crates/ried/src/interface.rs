//! [`interface!`](crate::interface): what a ried exports and imports, in one place.

/// Declares the functions that a ried offers to jams, those that it needs, and how it starts. Use it once
/// per ried; each part is optional, in this order.
///
/// - `import { .. }`: functions of the program, or of a ried that was loaded before. They are called
///   as ordinary functions, and are resolved once, when the ried starts. `= "name"` after a function
///   imports it under another name than the program exports it: so a ried can override a function and
///   call the one that it overrides.
/// - `export { .. }`: functions with types that are [`Abi`](crate::Abi), and bodies. Jams call them in
///   delegated context, where they must not wait.
/// - `start = path;`: a function `fn(&Host) -> Result<(), String>` that runs once in each process, on a
///   thread of its own, before any export is called. If it returns an error, the call that loads the
///   ried fails with it, and jams do not see the functions; the next load calls it again. It must not
///   load rieds.
///
/// ```
/// ried::interface! {
///     export {
///         /// Sums of squares.
///         pub fn squares(numbers: &[u32]) -> u64 {
///             numbers.iter().map(|number| u64::from(*number).pow(2)).sum()
///         }
///     }
/// }
/// assert_eq!(squares(&[1, 2, 3]), 14);
/// ```
///
/// A function cannot keep what it gets longer than its call:
///
/// ```compile_fail,E0597
/// ried::interface! {
///     export {
///         fn keep(word: &'static u64) {}
///     }
/// }
/// ```
///
/// A result borrows nothing, since signatures do not cover lifetimes:
///
/// ```compile_fail,E0277
/// ried::interface! {
///     import {
///         fn first(bytes: &[u8]) -> &u8;
///     }
/// }
/// ```
#[macro_export]
macro_rules! interface {
    (
        $(import { $(
            $(#[$import_meta:meta])* $import_visibility:vis
            fn $import:ident(
                $($import_parameter:ident: $import_type:ty),* $(,)?
            ) $(-> $import_result:ty)? $(= $symbol:literal)?;
        )* })?
        $(export { $(
            $(#[$meta:meta])* $visibility:vis
            fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block
        )* })?
        $(start = $start:path;)?
    ) => {
        $($(
            $(#[$import_meta])*
            #[allow(unsafe_code)]
            $import_visibility fn $import(
                $($import_parameter: $import_type),*
            ) $(-> $import_result)? {
                type Function = unsafe extern "C-unwind" fn(
                    $(<$import_type as $crate::Abi>::Repr),*
                ) -> $crate::repr!($($import_result)?);
                let function = $crate::imported(&gossamer_ried_imports::$import);
                $(let $import_parameter = $crate::Abi::into_repr($import_parameter);)*
                // SAFETY: who filled the slot has compared the signature, so its function takes and
                // returns these types.
                let result = $crate::host_call(move || unsafe {
                    let function = ::core::mem::transmute::<*mut (), Function>(function);
                    function($($import_parameter),*)
                });
                // SAFETY: the function returned a value of this type.
                unsafe { <$crate::result!($($import_result)?) as $crate::Abi>::from_repr(result) }
            }
        )*)?

        $($(
            $(#[$meta])*
            $visibility fn $name($($parameter: $type),*) $(-> $result)? $body
        )*)?

        /// The slots of the imports, which the receiver fills.
        #[doc(hidden)]
        #[allow(missing_docs, non_upper_case_globals, unreachable_pub, unused_imports, unsafe_code)]
        mod gossamer_ried_imports {
            use super::*;

            $($(
                pub(super) static $import: $crate::RiedImport = {
                    const NAME: &str = $crate::symbol!($($symbol)? $import);
                    const SIGNATURE: u64 = $crate::function_signature!(
                        ($($import_type),*) $(-> $import_result)?
                    );
                    const TYPES: &str = $crate::function_types!(
                        ($($import_type),*) $(-> $import_result)?
                    );
                    // SAFETY: the section is of data that nothing runs or changes.
                    #[unsafe(link_section = ".ried.imports")]
                    static RECORD: [u8; $crate::record_bytes(NAME, TYPES)] =
                        $crate::record(SIGNATURE, NAME, TYPES);
                    $crate::RiedImport::new(&RECORD)
                };
            )*)?

            pub(super) static ALL: &[&$crate::RiedImport] = &[$($(&$import),*)?];
        }

        #[allow(
            unsafe_code,
            unused_variables,
            improper_ctypes_definitions,
            clippy::unused_unit,
            clippy::let_unit_value
        )]
        const _: () = {
            static EXPORTS: &[$crate::RiedExport] = &[$($({
                /// # Safety
                /// The parameters are of `into_repr` of these types.
                unsafe extern "C" fn injected(
                    $($parameter: <$type as $crate::Abi>::Repr),*
                ) -> $crate::repr!($($result)?) {
                    // SAFETY: the import of the caller has the signature of this function.
                    match $crate::caught(|| unsafe { body($($parameter),*) }) {
                        Ok(result) => result,
                        Err(kept) => $crate::escape(kept),
                    }
                }

                /// # Safety
                /// The parameters are of `into_repr` of these types.
                unsafe extern "C-unwind" fn local(
                    $($parameter: <$type as $crate::Abi>::Repr),*
                ) -> $crate::repr!($($result)?) {
                    // SAFETY: the import of the caller has the signature of this function.
                    match $crate::caught(|| unsafe { body($($parameter),*) }) {
                        Ok(result) => result,
                        Err(kept) => $crate::raise(kept),
                    }
                }

                /// # Safety
                /// The parameters are of `into_repr` of these types.
                unsafe fn body(
                    $($parameter: <$type as $crate::Abi>::Repr),*
                ) -> $crate::repr!($($result)?) {
                    // References live as long as this local value at most: signatures do not cover
                    // lifetimes.
                    let call = ();
                    // SAFETY: the caller was compiled with the same types, by its signature.
                    #[allow(unused_unsafe)]
                    let result = unsafe {
                        $(
                            assert!(
                                <$type as $crate::Abi>::is_value(&$parameter),
                                "parameter {:?} of {:?} is not text in UTF-8: the jam must check it",
                                stringify!($parameter),
                                stringify!($name),
                            );
                        )*
                        $name($(<$type as $crate::Abi>::from_call($parameter, &call)),*)
                    };
                    $crate::Abi::into_repr(result)
                }

                const NAME: &str = stringify!($name);
                const SIGNATURE: u64 = $crate::function_signature!(($($type),*) $(-> $result)?);
                const TYPES: &str = $crate::function_types!(($($type),*) $(-> $result)?);
                // SAFETY: the section is of data that nothing runs or changes.
                #[unsafe(link_section = ".ried.exports")]
                static RECORD: [u8; $crate::record_bytes(NAME, TYPES)] =
                    $crate::record(SIGNATURE, NAME, TYPES);
                $crate::RiedExport::new(&RECORD, injected as *const (), local as *const ())
            }),*)?];

            /// # Safety
            /// The table is a receiver's, which outlives the ried.
            unsafe extern "C" fn start(host: *const $crate::HostTable) -> *mut $crate::Failure {
                // SAFETY: as the caller promises.
                unsafe { $crate::start(host, $crate::interface_start!($($start)?)) }
            }

            // SAFETY: the symbol by which a receiver finds it; one ried has one interface.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)]
            static gossamer_ried: $crate::RiedData =
                $crate::RiedData::new(EXPORTS, gossamer_ried_imports::ALL, start);
        };
    };
}

/// What starts a ried that says nothing of it.
#[doc(hidden)]
#[macro_export]
macro_rules! interface_start {
    () => {
        |_| Ok(())
    };
    ($start:path) => {
        $start
    };
}

/// The name of an import, which may be given.
#[doc(hidden)]
#[macro_export]
macro_rules! symbol {
    ($name:ident) => {
        stringify!($name)
    };
    ($symbol:literal $name:ident) => {
        $symbol
    };
}

/// A result type, which may be missing.
#[doc(hidden)]
#[macro_export]
macro_rules! result {
    () => {
        ()
    };
    ($result:ty) => {
        $result
    };
}

/// How a function's result is passed.
#[doc(hidden)]
#[macro_export]
macro_rules! repr {
    ($($result:ty)?) => {
        <$crate::result!($($result)?) as $crate::Abi>::Repr
    };
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::border::tests::{HOST, fill, taken};
    use crate::start::start;

    thread_local! {
        static DROPPED: Cell<u32> = const { Cell::new(0) };
    }

    struct Counts;

    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.set(DROPPED.get() + 1);
        }
    }

    crate::interface! {
        import {
            fn half_of(number: u64) -> u64 = "half";
        }
        export {
            /// Half of it, and one.
            fn more_than_half(number: u64) -> u64 {
                let _counts = Counts;
                half_of(number) + 1
            }

            fn chars(text: &str) -> u64 {
                text.chars().count() as u64
            }

            fn nothing() {}
        }
        start = begin;
    }

    fn begin(_: &crate::Host) -> Result<(), String> {
        Ok(())
    }

    /// A function of the program: it panics with the program's own.
    extern "C-unwind" fn program_half(number: u64) -> u64 {
        assert!(number.is_multiple_of(2), "{number} has no half");
        number / 2
    }

    // SAFETY: the symbol of the interface above, whose type this is.
    #[allow(unsafe_code)]
    unsafe extern "C" {
        #[link_name = "gossamer_ried"]
        static DATA: crate::RiedData;
    }

    #[test]
    #[allow(unsafe_code)]
    fn functions_cross_the_border_and_panics_end_there() {
        // SAFETY: of this program, which is never unmapped.
        let (exports, imports) = unsafe { (DATA.exports(), DATA.imports()) };
        // SAFETY: of this program, and of this type, as the signatures say.
        let names: Vec<_> = exports.iter().map(|export| unsafe { export.name() }).collect();
        assert_eq!(names, [&b"more_than_half"[..], b"chars", b"nothing"]);
        // SAFETY: of this program, and of this type, as the signatures say.
        let types: Vec<_> = exports.iter().map(|export| unsafe { export.types() }).collect();
        assert_eq!(types, [&b"(u64) -> u64"[..], b"(&str) -> u64", b"()"]);
        let [import] = imports else { panic!("one import") };
        // SAFETY: of this program, which is never unmapped.
        assert_eq!(unsafe { import.name() }, b"half");
        assert_eq!(import.signature, jam_abi::function_signature!((u64) -> u64));
        fill(import, program_half as *const ());
        // SAFETY: the table is a static.
        assert!(unsafe { start(&HOST, begin) }.is_null());
        assert_eq!(more_than_half(8), 5);
        // SAFETY: it is of this type, as its signature says.
        let export: unsafe extern "C-unwind" fn(u64) -> u64 =
            unsafe { std::mem::transmute(exports[0].local) };
        let dropped = DROPPED.get();
        // SAFETY: of this program, and of this type, as the signatures say.
        let caught = taken(move || unsafe { export(7) });
        assert_eq!(caught.unwrap_err().0, "7 has no half");
        assert_eq!(DROPPED.get(), dropped + 1, "destructors of the ried ran");
        // SAFETY: of this program, and of this type, as the signatures say.
        assert_eq!(taken(move || unsafe { export(6) }), Ok(4));
        // SAFETY: of this program, and of this type, as the signatures say.
        let chars: unsafe extern "C-unwind" fn(jam_abi::Slice<u8>) -> u64 =
            unsafe { std::mem::transmute(exports[1].local) };
        let bytes = b"gr\xf6".as_ptr().cast_mut();
        // SAFETY: three bytes, for a function of this type.
        let caught = taken(move || unsafe { chars(jam_abi::Slice::new(bytes, 3)) });
        let (message, file, line) = caught.unwrap_err();
        assert!(message.contains("\"text\" of \"chars\" is not text in UTF-8"), "{message}");
        assert!(file.ends_with("interface.rs") && line > 0, "{file}:{line}");
    }
}

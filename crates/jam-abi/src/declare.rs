//! Declarations of plain structs ([`plain!`](crate::plain)) and of the types of properties
//! ([`property!`](crate::property)).

/// Declares structs whose values travel as bytes: arguments, elements of payloads, results, and
/// parameters of imports. They are `repr(C)` and `Copy`, their fields are [`Plain`](crate::Plain), and padding is
/// a compile error, as is an attribute that changes their alignment: signatures do not cover it.
///
/// ```
/// gossamer_jam_abi::plain! {
///     /// A range of a table.
///     #[derive(Debug, PartialEq)]
///     pub struct Range { pub start: u64, pub len: u32, pub step: u32 }
/// }
/// ```
///
/// ```compile_fail
/// gossamer_jam_abi::plain! {
///     pub struct HasPadding { pub start: u64, pub len: u32 }
/// }
/// ```
///
/// ```compile_fail
/// gossamer_jam_abi::plain! {
///     #[repr(align(32))]
///     pub struct IsOverAligned { pub words: [u64; 4] }
/// }
/// ```
///
/// ```compile_fail
/// gossamer_jam_abi::plain! {
///     #[repr(packed)]
///     pub struct IsPacked { pub start: u64, pub len: u32 }
/// }
/// ```
#[macro_export]
macro_rules! plain {
    ($(
        $(#[$meta:meta])* $visibility:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty),+ $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $type),+
        }

        // SAFETY: the hash covers the fields' types, in the order that `repr(C)` gives them.
        unsafe impl $crate::Pointee for $name {
            const SIGNATURE: u64 =
                $crate::signature::of_struct(&[$(<$type as $crate::Pointee>::SIGNATURE),+]);
        }

        // SAFETY: its fields are plain, and fill it, which is checked here.
        unsafe impl $crate::Plain for $name {}

        const _: () = {
            const fn is_plain<T: $crate::Plain>() -> usize {
                ::core::mem::size_of::<T>()
            }
            let fields = 0 $(+ is_plain::<$type>())+;
            assert!(
                fields == ::core::mem::size_of::<$name>(),
                concat!("`", stringify!($name), "` has padding: reorder its fields, or fill the gap")
            );
            let of_fields = [$(::core::mem::align_of::<$type>()),+];
            let (mut greatest, mut at) = (1, 0);
            while at < of_fields.len() {
                if of_fields[at] > greatest {
                    greatest = of_fields[at];
                }
                at += 1;
            }
            let align = ::core::mem::align_of::<$name>();
            assert!(
                align == greatest && align <= $crate::MAX_PLAIN_ALIGN,
                concat!("`", stringify!($name), "` has another alignment than its fields: remove the `repr`")
            );
        };

        $crate::abi_by_value!($name);
    )*};
}

/// Declares the types of properties: opaque, with the name that the crate of the property gives
/// each. A jam may only pass a reference to one on.
///
/// ```
/// gossamer_jam_abi::property! {
///     /// A shard of the key-value store.
///     pub struct Shard = "kv.Shard@3";
/// }
/// ```
///
/// No safe code makes a value of one, not even in its own module:
///
/// ```compile_fail
/// gossamer_jam_abi::property! {
///     #[derive(Default)]
///     pub struct Shard = "kv.Shard@3";
/// }
/// ```
///
/// ```compile_fail,E0451
/// use core::marker::PhantomData;
/// use gossamer_jam_abi::Opaque;
///
/// gossamer_jam_abi::property! {
///     pub struct Shard = "kv.Shard@3";
/// }
/// let own = Shard { opaque: Opaque { bytes: [], marker: PhantomData } };
/// ```
#[macro_export]
macro_rules! property {
    ($($(#[$meta:meta])* $visibility:vis struct $name:ident = $property:literal;)*) => {$(
        $(#[$meta])*
        #[repr(C)]
        $visibility struct $name {
            opaque: $crate::Opaque,
        }

        // SAFETY: the name says which type of a receiver it is; nothing here knows its layout.
        unsafe impl $crate::Pointee for $name {
            const SIGNATURE: u64 = $crate::signature::of_property($property);
        }

        // SAFETY: its field is empty, and has no safe constructor.
        unsafe impl $crate::Property for $name {
            const NAME: &'static str = $property;
        }
    )*};
}

//! The types that may cross the border of a jam: as bytes ([`Plain`]), behind a reference
//! ([`Property`]), and as parameters and results of imports ([`Abi`]). What refers to others is in
//! `references.rs`.

use core::marker::{PhantomData, PhantomPinned};

use crate::signature::{self, UNIT};

/// The largest alignment of a [`Plain`] type, in bytes: that of arguments and payloads in memory.
pub const MAX_PLAIN_ALIGN: usize = 16;

/// A type that a jam and its receiver may share by reference.
///
/// # Safety
/// Types with the same [`SIGNATURE`](Self::SIGNATURE) have the same layout and invariants wherever
/// they are compiled.
pub unsafe trait Pointee {
    /// The hash of the type.
    const SIGNATURE: u64;
}

/// A type whose values travel as bytes. Implemented for integers, floats, arrays of plain types, and
/// structs that [`plain!`](crate::plain) declares.
///
/// # Safety
/// Its layout is the same in every compilation, it has no padding, every bit pattern is a value, and
/// its alignment is at most [`MAX_PLAIN_ALIGN`].
pub unsafe trait Plain: Pointee + Copy + 'static {}

/// The type of a property that a receiver owns, which a jam sees by reference only. Declared by
/// [`property!`](crate::property).
///
/// # Safety
/// It has no fields that a jam could access, so that nothing depends on its size.
pub unsafe trait Property: Pointee + 'static {
    /// The name that the crate of the property gives its type, such as `kv.Shard@3`.
    const NAME: &'static str;
}

/// What a type that [`property!`](crate::property) declares consists of: nothing, of which safe code
/// makes no value.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C)]
pub struct Opaque {
    bytes: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A type that an import may take: integers, floats, `bool`, `&T` and `&mut T` of plain and property
/// types, slices of plain types, `&str`, raw pointers, and plain structs by value.
///
/// # Safety
/// [`Repr`](Self::Repr) is a type of C, into which every value converts and from which it returns;
/// types with the same [`SIGNATURE`](Self::SIGNATURE) have the same of both.
#[diagnostic::on_unimplemented(
    message = "functions that jams import or export cannot take or return `{Self}`",
    label = "not a type that crosses the border of a jam",
    note = "they take integers, floats, `bool`, `&T` and `&mut T` of plain and property types, slices of \
            plain types, `&str`, raw pointers, and structs that `plain!` declares"
)]
pub unsafe trait Abi: Sized {
    /// The hash of the type.
    const SIGNATURE: u64;
    /// How a value is passed.
    type Repr;
    /// The type with `'a` as its lifetime, if it has one.
    type Short<'a>
    where
        Self: 'a;

    /// The value, to be passed.
    fn into_repr(self) -> Self::Repr;

    /// Whether what was passed is a value: C can pass text that is not UTF-8.
    ///
    /// # Safety
    /// As for [`from_call`](Self::from_call), but the bytes of text may be any.
    #[inline(always)]
    unsafe fn is_value(_repr: &Self::Repr) -> bool {
        true
    }

    /// The value that was passed.
    ///
    /// # Safety
    /// `repr` is from [`into_repr`](Self::into_repr) of a type with this signature, and what it
    /// refers to is borrowed for as long as `Self` says.
    unsafe fn from_repr(repr: Self::Repr) -> Self;

    /// The value that was passed, for as long as the call runs, during which `call` is borrowed.
    ///
    /// Signatures do not cover lifetimes, so a receiver gets parameters by this function: a function
    /// that wants to keep one longer than its call does not compile.
    ///
    /// ```
    /// use gossamer_jam_abi::Abi;
    ///
    /// fn double(word: &u64) -> u64 { *word * 2 }
    ///
    /// unsafe extern "C" fn call_of_double(word: *const u64) -> u64 {
    ///     let call = ();
    ///     double(unsafe { <&u64 as Abi>::from_call(word, &call) })
    /// }
    /// # assert_eq!(unsafe { call_of_double(&4) }, 8);
    /// ```
    ///
    /// ```compile_fail,E0597
    /// # use gossamer_jam_abi::Abi;
    /// fn keep(_: &'static u64) {}
    ///
    /// unsafe extern "C" fn call_of_keep(word: *const u64) {
    ///     let call = ();
    ///     keep(unsafe { <&'static u64 as Abi>::from_call(word, &call) })
    /// }
    /// ```
    ///
    /// # Safety
    /// `repr` is from [`into_repr`](Self::into_repr) of a type with this signature, and what it
    /// refers to is borrowed during the call.
    unsafe fn from_call<'a>(repr: Self::Repr, call: &'a ()) -> Self::Short<'a>
    where
        Self: 'a;
}

/// An [`Abi`] type that an import may return: those that borrow nothing, since a signature does not
/// cover lifetimes. Results also may be `()`.
///
/// # Safety
/// As for [`Abi`]; it contains no reference.
pub unsafe trait AbiResult: Abi {}

macro_rules! plain_numbers {
    ($($number:ty)*) => {$(
        // SAFETY: the name says the layout.
        unsafe impl Pointee for $number {
            const SIGNATURE: u64 = signature::of_name(stringify!($number));
        }
        // SAFETY: a number has no padding and every bit pattern is one; its size is that of its
        // name, or of a pointer, and jams are for one machine.
        unsafe impl Plain for $number {}
        $crate::abi_by_value!($number);
    )*};
}

/// Implements [`Abi`] for a type that C can pass by value and that borrows nothing: a [`Pointee`], or one
/// with these parameters and this signature.
#[doc(hidden)]
#[macro_export]
macro_rules! abi_by_value {
    ([$($parameters:tt)*] $type:ty, $signature:expr) => {
        // SAFETY: it is a type of C already.
        unsafe impl<$($parameters)*> $crate::Abi for $type {
            const SIGNATURE: u64 = $signature;
            type Repr = Self;
            type Short<'a>
                = Self
            where
                Self: 'a;

            #[inline(always)]
            fn into_repr(self) -> Self {
                self
            }

            #[inline(always)]
            unsafe fn from_repr(repr: Self) -> Self {
                repr
            }

            #[inline(always)]
            unsafe fn from_call<'a>(repr: Self, _: &'a ()) -> Self
            where
                Self: 'a,
            {
                repr
            }
        }
        // SAFETY: it contains no reference.
        unsafe impl<$($parameters)*> $crate::AbiResult for $type {}
    };
    ($type:ty) => {
        $crate::abi_by_value!([] $type, <$type as $crate::Pointee>::SIGNATURE);
    };
}

plain_numbers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);

// SAFETY: the hash covers the element's type and the length.
unsafe impl<T: Plain, const N: usize> Pointee for [T; N] {
    const SIGNATURE: u64 = signature::of_array(T::SIGNATURE, N);
}

// SAFETY: elements lie side by side.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

// SAFETY: only the two values of `bool` are made, and both sides are code, not bytes of a peer.
unsafe impl Pointee for bool {
    const SIGNATURE: u64 = signature::of_name("bool");
}

abi_by_value!(bool);

// SAFETY: there is one value.
unsafe impl Pointee for () {
    const SIGNATURE: u64 = UNIT;
}

abi_by_value!(());

#[cfg(test)]
mod tests {
    use super::*;

    crate::plain! {
        #[derive(Debug, PartialEq)]
        struct Pair { first: u32, second: i32 }

        struct Nested { pair: Pair, tail: [u16; 4] }
    }

    crate::property! {
        struct Table = "bench.Table@1";
    }

    fn round_trip<T: Abi>(value: T) -> T {
        // SAFETY: it is of the same type.
        unsafe { T::from_repr(value.into_repr()) }
    }

    #[test]
    fn values_return_as_they_were() {
        assert_eq!(round_trip(7_u64), 7);
        assert_eq!(round_trip(-1.5_f32), -1.5);
        assert!(round_trip(true));
        assert_eq!(round_trip("text"), "text");
        assert_eq!(round_trip(&[1_u16, 2][..]), [1, 2]);
        assert_eq!(round_trip(&mut [1_u16, 2][..]), [1, 2]);
        assert_eq!(round_trip(&Pair { first: 1, second: 2 }).second, 2);
        assert_eq!(round_trip(Pair { first: 1, second: 2 }), Pair { first: 1, second: 2 });
    }

    #[test]
    fn signatures_are_of_structure() {
        assert_eq!(<&Table as Abi>::SIGNATURE, signature::of("&", Table::SIGNATURE));
        assert_eq!(Table::SIGNATURE, signature::of_property("bench.Table@1"));
        assert_ne!(<&Table as Abi>::SIGNATURE, <&mut Table as Abi>::SIGNATURE);
        let pair = signature::of_struct(&[u32::SIGNATURE_OF, i32::SIGNATURE_OF]);
        assert_eq!(Pair::SIGNATURE_OF, pair);
        let tail = signature::of_array(u16::SIGNATURE_OF, 4);
        assert_eq!(Nested::SIGNATURE_OF, signature::of_struct(&[pair, tail]));
    }

    /// Names the hash of a type that is both a pointee and passed by value.
    trait Hash: Pointee {
        const SIGNATURE_OF: u64 = Self::SIGNATURE;
    }

    impl<T: Pointee> Hash for T {}
}

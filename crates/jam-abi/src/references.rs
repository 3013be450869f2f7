//! The types by which an import takes what it does not copy: references, pointers, slices and text.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::signature;
use crate::types::{Abi, Plain, Pointee};

macro_rules! abi_references {
    ($(
        $reference:ty, $life:lifetime $short:ty, $pointer:ty, $constructor:literal,
        $back:ident => $value:expr;
    )*) => {$(
        // SAFETY: a reference is passed as its pointer, to a type with the same signature.
        unsafe impl<T: Pointee> Abi for $reference {
            const SIGNATURE: u64 = signature::of($constructor, T::SIGNATURE);
            type Repr = $pointer;
            type Short<$life>
                = $short
            where
                Self: $life;

            #[inline(always)]
            fn into_repr(self) -> $pointer {
                self
            }

            #[inline(always)]
            unsafe fn from_repr($back: $pointer) -> Self {
                // SAFETY: the pointer was made of such a reference, as the caller promises.
                unsafe { $value }
            }

            #[inline(always)]
            unsafe fn from_call<$life>($back: $pointer, _: &$life ()) -> $short
            where
                Self: $life,
            {
                // SAFETY: the pointer was made of such a reference, as the caller promises.
                unsafe { $value }
            }
        }
    )*};
}

abi_references! {
    &T, 'a &'a T, *const T, "&", pointer => &*pointer;
    &mut T, 'a &'a mut T, *mut T, "&mut", pointer => &mut *pointer;
}

// The code that dereferences a pointer guarantees that it is valid.
crate::abi_by_value!([T: Pointee] *const T, signature::of("*const", T::SIGNATURE));
crate::abi_by_value!([T: Pointee] *mut T, signature::of("*mut", T::SIGNATURE));

/// How a slice or text is passed: pointer and number of elements, in two words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Slice<T> {
    /// The first element: not null, and aligned, unless the slice is empty.
    pub start: *mut T,
    /// How many elements there are.
    pub len: usize,
    elements: PhantomData<*mut T>,
}

impl<T> Slice<T> {
    /// A slice of `len` elements from `start` on.
    pub const fn new(start: *mut T, len: usize) -> Self {
        Self { start, len, elements: PhantomData }
    }

    /// The first element, for a slice of Rust, whose pointer is never null.
    #[inline(always)]
    const fn first(&self) -> *mut T {
        if self.len == 0 { NonNull::dangling().as_ptr() } else { self.start }
    }
}

// SAFETY: pointer and length return as they were.
unsafe impl<T: Plain> Abi for &[T] {
    const SIGNATURE: u64 = signature::of("&[]", T::SIGNATURE);
    type Repr = Slice<T>;
    type Short<'a>
        = &'a [T]
    where
        Self: 'a;

    #[inline(always)]
    fn into_repr(self) -> Slice<T> {
        Slice::new(self.as_ptr().cast_mut(), self.len())
    }

    #[inline(always)]
    #[allow(clippy::disallowed_methods, reason = "it was a slice, so no other code writes to it")]
    unsafe fn from_repr(repr: Slice<T>) -> Self {
        // SAFETY: it was made of such a slice, as the caller promises.
        unsafe { core::slice::from_raw_parts(repr.first(), repr.len) }
    }

    #[inline(always)]
    unsafe fn from_call<'a>(repr: Slice<T>, _: &'a ()) -> &'a [T]
    where
        Self: 'a,
    {
        // SAFETY: as the caller promises.
        unsafe { <&'a [T]>::from_repr(repr) }
    }
}

// SAFETY: pointer and length return as they were.
unsafe impl<T: Plain> Abi for &mut [T] {
    const SIGNATURE: u64 = signature::of("&mut []", T::SIGNATURE);
    type Repr = Slice<T>;
    type Short<'a>
        = &'a mut [T]
    where
        Self: 'a;

    #[inline(always)]
    fn into_repr(self) -> Slice<T> {
        Slice::new(self.as_mut_ptr(), self.len())
    }

    #[inline(always)]
    #[allow(clippy::disallowed_methods, reason = "it was a slice, so no other code writes to it")]
    unsafe fn from_repr(repr: Slice<T>) -> Self {
        // SAFETY: it was made of such a slice, as the caller promises.
        unsafe { core::slice::from_raw_parts_mut(repr.first(), repr.len) }
    }

    #[inline(always)]
    unsafe fn from_call<'a>(repr: Slice<T>, _: &'a ()) -> &'a mut [T]
    where
        Self: 'a,
    {
        // SAFETY: as the caller promises.
        unsafe { <&'a mut [T]>::from_repr(repr) }
    }
}

// SAFETY: pointer and length return as they were.
unsafe impl Abi for &str {
    const SIGNATURE: u64 = signature::of_name("&str");
    type Repr = Slice<u8>;
    type Short<'a>
        = &'a str
    where
        Self: 'a;

    #[inline(always)]
    fn into_repr(self) -> Slice<u8> {
        self.as_bytes().into_repr()
    }

    #[inline]
    unsafe fn is_value(repr: &Slice<u8>) -> bool {
        // SAFETY: they are bytes, as the caller promises.
        core::str::from_utf8(unsafe { <&[u8]>::from_repr(*repr) }).is_ok()
    }

    #[inline(always)]
    unsafe fn from_repr(repr: Slice<u8>) -> Self {
        // SAFETY: it was made of text, as the caller promises.
        unsafe { core::str::from_utf8_unchecked(<&[u8]>::from_repr(repr)) }
    }

    #[inline(always)]
    unsafe fn from_call<'a>(repr: Slice<u8>, _: &'a ()) -> &'a str
    where
        Self: 'a,
    {
        // SAFETY: as the caller promises.
        unsafe { <&'a str>::from_repr(repr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_c_passes_for_nothing_is_an_empty_slice() {
        // SAFETY: they are of no elements.
        unsafe {
            let shared = <&[u64]>::from_repr(Slice::new(core::ptr::null_mut(), 0));
            assert!(shared.is_empty() && shared.as_ptr().addr() == align_of::<u64>());
            let own = <&mut [u64]>::from_repr(Slice::new(core::ptr::null_mut(), 0));
            assert!(own.is_empty() && own.as_ptr().addr() == align_of::<u64>());
            let text = <&str>::from_repr(Slice::new(core::ptr::null_mut(), 0));
            assert!(text.is_empty() && text.as_ptr().addr() == 1);
        }
    }

    #[test]
    fn only_utf_8_is_text() {
        for (bytes, is_text) in [(&b"text"[..], true), (b"", true), (b"te\xff", false)] {
            // SAFETY: the slice is of `bytes`.
            let found = unsafe { <&str>::is_value(&bytes.into_repr()) };
            assert_eq!(found, is_text);
        }
    }
}

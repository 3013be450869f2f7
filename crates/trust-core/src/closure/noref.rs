//! [`NoRef`]: what holds no reference into this process's memory (thesis 3.2.5).
//!
//! # What is trusted
//!
//! Arguments are decoded, and bytes that are no value of their type are refused. Captures are not:
//! their bytes are moved, and the trustee takes what arrives for a closure of the type that the
//! request names. That is right when the sender is a process of this rack that runs this very
//! program: hosts compare build identities when they meet, so both know the closure by the same
//! type and layout, and a sender forgets the closure whose bytes it sent. A peer that lies about
//! its build, or writes other bytes into its slot, can make a `bool` of 2, and thereby undefined
//! behaviour. Hosts that are not trusted are beyond this feature; without it nothing that a peer
//! sends becomes a value unchecked.
//!
//! A file of its own, because stable compilers must not even parse auto traits.

/// What holds no reference, pointer or handle that means something in this process only. An auto
/// trait: everything made of such values is one, except what is excluded here.
///
/// Integers that were made from pointers or descriptors cannot be distinguished from others, and
/// pointers to functions are known by the number of their arguments, up to 32: one with more is let
/// through.
pub auto trait NoRef {}

impl<T: ?Sized> !NoRef for &T {}
impl<T: ?Sized> !NoRef for &mut T {}
impl<T: ?Sized> !NoRef for *const T {}
impl<T: ?Sized> !NoRef for *mut T {}

// Not made of pointers, and yet they mean something here only.
// Files and sockets are made of an `OwnedFd`.
impl !NoRef for std::os::fd::OwnedFd {}
impl !NoRef for std::os::fd::BorrowedFd<'_> {}
impl !NoRef for std::time::Instant {}
impl !NoRef for std::thread::ThreadId {}

// The compiler looks at explicit implementations by the number of arguments: one excludes them all,
// those that are generic over lifetimes among them.
macro_rules! exclude_functions {
    (= $($argument:ident)*) => {
        impl<R, $($argument),*> !NoRef for fn($($argument),*) -> R {}
        impl<R, $($argument),*> !NoRef for unsafe fn($($argument),*) -> R {}
        impl<R, $($argument),*> !NoRef for extern "C" fn($($argument),*) -> R {}
        impl<R, $($argument),*> !NoRef for unsafe extern "C" fn($($argument),*) -> R {}
    };
    () => { exclude_functions! { = } };
    ($first:ident $($rest:ident)*) => {
        exclude_functions! { = $first $($rest)* }
        exclude_functions! { $($rest)* }
    };
}
exclude_functions! {
    A01 A02 A03 A04 A05 A06 A07 A08 A09 A10 A11 A12 A13 A14 A15 A16
    A17 A18 A19 A20 A21 A22 A23 A24 A25 A26 A27 A28 A29 A30 A31 A32
}

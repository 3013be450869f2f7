//! [`AsView`]: what a caller sees of a value that stays with its trustee.

use std::rc::Rc;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A type whose values are seen where they lie, by [`apply_ref`](crate::Trust::apply_ref) and its
/// relatives.
///
/// A view borrows: `&[u8]`, `&str`, or a struct of such and of plain fields. The trustee encodes it
/// straight into the reply, and the caller decodes it from there; on the trustee's own thread
/// nothing is encoded. Neither side allocates for a view of up to some 40 KB.
///
/// Numbers, `bool`, `char` and `()` are views of themselves, and a tuple of two or three is seen part by
/// part. Slices of other numbers have no view, because their bytes are not aligned in a reply: send them
/// as bytes, or as the result of [`apply`](crate::Trust::apply).
///
/// A store with data beside its bytes has a view of its own:
///
/// ```
/// use gossamer_trust_core::{AsView, Trust};
/// use serde::{Deserialize, Serialize};
/// use std::collections::HashMap;
///
/// struct Item {
///     flags: u32,
///     data: Vec<u8>,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct ItemView<'a> {
///     flags: u32,
///     data: &'a [u8],
/// }
///
/// impl AsView for Item {
///     type View<'a> = ItemView<'a>;
///     fn as_view(&self) -> ItemView<'_> {
///         ItemView { flags: self.flags, data: &self.data }
///     }
/// }
///
/// fn bytes_of(items: &Trust<HashMap<u64, Item>>, key: u64) -> Option<usize> {
///     items.apply_ref_with(|items, key| items.get(&key), key, |item| item.map(|i| i.data.len()))
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be seen where it lies",
    label = "has no view",
    note = "return `&[u8]`, `&str` or a reference to a type of yours that implements `AsView`; for a \
            small owned result use `apply`"
)]
pub trait AsView {
    /// What the caller sees.
    type View<'a>: Serialize + Deserialize<'a>
    where
        Self: 'a;

    /// The view of this value. Runs on its trustee, in delegated context; for arguments that are
    /// [lent](crate::Trust::lend), on the caller's thread.
    fn as_view(&self) -> Self::View<'_>;
}

impl AsView for [u8] {
    type View<'a> = &'a [u8];

    #[inline(always)]
    fn as_view(&self) -> &[u8] {
        self
    }
}

impl AsView for str {
    type View<'a> = &'a str;

    #[inline(always)]
    fn as_view(&self) -> &str {
        self
    }
}

impl AsView for Vec<u8> {
    type View<'a> = &'a [u8];

    #[inline(always)]
    fn as_view(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> AsView for [u8; N] {
    type View<'a> = &'a [u8];

    #[inline(always)]
    fn as_view(&self) -> &[u8] {
        self
    }
}

impl AsView for String {
    type View<'a> = &'a str;

    #[inline(always)]
    fn as_view(&self) -> &str {
        self
    }
}

macro_rules! pointers {
    ($($pointer:ident)*) => {
        $(
            impl<R: AsView + ?Sized> AsView for $pointer<R> {
                type View<'a>
                    = R::View<'a>
                where
                    R: 'a;

                #[inline(always)]
                fn as_view(&self) -> R::View<'_> {
                    (**self).as_view()
                }
            }
        )*
    };
}

pointers! { Box Rc Arc }

macro_rules! plain {
    ($($type:ty)*) => {
        $(
            impl AsView for $type {
                type View<'a> = $type;

                #[inline(always)]
                fn as_view(&self) -> $type {
                    *self
                }
            }
        )*
    };
}

plain! { () bool char u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }

macro_rules! tuples {
    ($(($($part:ident $index:tt)*))*) => {
        $(
            impl<$($part: AsView),*> AsView for ($($part,)*) {
                type View<'a>
                    = ($($part::View<'a>,)*)
                where
                    Self: 'a;

                #[inline(always)]
                fn as_view(&self) -> Self::View<'_> {
                    ($(self.$index.as_view(),)*)
                }
            }
        )*
    };
}

tuples! { (A 0 B 1) (A 0 B 1 C 2) }

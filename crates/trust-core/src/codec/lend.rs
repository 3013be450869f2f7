//! [`Lend`]: arguments that the caller lends to a call, and the closure sees where they arrive.

use serde::{Deserialize, Serialize};

use crate::codec::as_view::AsView;

/// Arguments that are lent to a call by [`Trust::lend`](crate::Trust::lend): references to what has a
/// [view](AsView) (`&[u8]`, `&str`, `&Vec<u8>`, or one to a type of yours), numbers, `bool`, `char` and
/// `()`, an `Option` of such, and tuples of up to four.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be lent to a call",
    label = "is no reference to a type that has a view, and no number",
    note = "lend `&[u8]`, `&str` or a reference to a type of yours that implements `AsView`, a number, \
            or a tuple of up to four of these; send other values by `apply_with`"
)]
pub trait Lend: LendAs {
    /// The arguments as the closure gets them on the caller's own thread.
    fn lend(&self) -> Self::Lent<'_>;
}

/// What the closure gets of arguments that are lent. A trait of its own, because beside `lend` the language
/// would bound the type by `Self: 'a`, which no closure for every lifetime satisfies.
pub trait LendAs {
    /// A [view](AsView::View), or the number itself.
    type Lent<'a>: Serialize + Deserialize<'a>;
}

impl<R: AsView + ?Sized + 'static> LendAs for &R {
    type Lent<'a> = R::View<'a>;
}

impl<R: AsView + ?Sized + 'static> Lend for &R {
    #[inline(always)]
    fn lend(&self) -> R::View<'_> {
        (**self).as_view()
    }
}

impl<A: LendAs> LendAs for Option<A> {
    type Lent<'a> = Option<A::Lent<'a>>;
}

impl<A: Lend> Lend for Option<A> {
    #[inline(always)]
    fn lend(&self) -> Self::Lent<'_> {
        self.as_ref().map(A::lend)
    }
}

macro_rules! plain {
    ($($type:ty)*) => {
        $(
            impl LendAs for $type {
                type Lent<'a> = $type;
            }

            impl Lend for $type {
                #[inline(always)]
                fn lend(&self) -> $type {
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
            impl<$($part: LendAs),*> LendAs for ($($part,)*) {
                type Lent<'a> = ($($part::Lent<'a>,)*);
            }

            impl<$($part: Lend),*> Lend for ($($part,)*) {
                #[inline(always)]
                fn lend(&self) -> Self::Lent<'_> {
                    ($(self.$index.lend(),)*)
                }
            }
        )*
    };
}

tuples! { (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) }

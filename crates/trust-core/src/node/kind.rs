//! [`Kind`]: a kind of call, as its sender sees it.

use crate::closure::call::{Apply, ApplyEach, ApplyRef, may_serve_runs, serves_runs};
use crate::closure::invoke::{Invoke, InvokeRef};
use crate::closure::lent::{ApplyLent, InvokeLent};
use crate::closure::registry::Delegated;
use crate::codec::{self, AsView, Lend, Portable};
use crate::wire::words::WORD;

/// A kind of call, as its sender sees it.
pub(crate) trait Kind: Delegated {
    /// As [`has_runs`](Self::has_runs), as far as it is a constant ([`codec::may_be_plain`]).
    const MAY_HAVE_RUNS: bool = false;

    /// Words after its head that its result will probably need.
    fn reply_words() -> usize;

    /// Whether requests with plain arguments may be sent in runs that share their head.
    #[cfg_attr(optimised, inline(always))]
    fn has_runs() -> bool {
        false
    }
}

impl<T, V, I> Kind for Apply<T, V, I>
where
    T: 'static,
    V: Portable,
    I: Invoke<T, V>,
    I::Output: Portable,
{
    const MAY_HAVE_RUNS: bool = may_serve_runs::<T, V, I>();

    #[cfg_attr(optimised, inline(always))]
    fn reply_words() -> usize {
        reply_words::<I::Output>()
    }

    #[cfg_attr(optimised, inline(always))]
    fn has_runs() -> bool {
        serves_runs::<T, V, I>()
    }
}

/// Only the trustee knows a view's length; a longer one stands apart.
impl<T, V, I> Kind for ApplyRef<T, V, I>
where
    T: 'static,
    V: Portable,
    I: InvokeRef<T, V>,
{
    #[cfg_attr(optimised, inline(always))]
    fn reply_words() -> usize {
        0
    }
}

impl<T, V, I> Kind for ApplyLent<T, V, I>
where
    T: 'static,
    V: Lend,
    I: InvokeLent<T, V>,
{
    #[cfg_attr(optimised, inline(always))]
    fn reply_words() -> usize {
        reply_words::<I::InPlace>()
    }
}

/// The result is nothing.
impl<T, K, V, F> Kind for ApplyEach<T, K, V, F>
where
    T: 'static,
    K: AsView + ?Sized + 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V),
{
    #[cfg_attr(optimised, inline(always))]
    fn reply_words() -> usize {
        0
    }
}

/// Words after its head that the result of a call will probably need; longer results find another
/// place. A result of one word takes the head's.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn reply_words<U: 'static>() -> usize {
    let words = const { size_of::<U>().div_ceil(WORD) };
    if words > 8 || codec::plain_words::<U>().is_some() {
        0
    } else {
        words + const { codec::HEADER.div_ceil(WORD) }
    }
}

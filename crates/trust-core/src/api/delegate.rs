//! `delegate!`: local values for a delegated closure, by name.
//!
//! A file of its own, because the compiler's messages about captured values point here.

use crate::Trust;

/// Delegates a closure that uses local values: they are moved into the request by name, and the
/// closure gets them as arguments of the same names.
///
/// ```ignore
/// delegate!(map, [key, value] |map| map.insert(key, value))
/// // is
/// map.apply_with(|map, (key, value)| map.insert(key, value), (key, value))
/// ```
///
/// `name = expression` sends another value under a name. References cannot be sent, and this is
/// where the values behind them are copied:
///
/// ```ignore
/// let word: &str = "hello";
/// delegate!(counts, [word = word.to_owned(), by = 2 * n] |counts| *counts.entry(word).or_default() += by)
/// ```
///
/// The result of the closure is the value of the macro, as with [`Trust::apply_with`]. A value
/// that the closure uses and the list forgets is an ordinary type error.
#[macro_export]
macro_rules! delegate {
    ($trust:expr, [$($value:ident $(= $given:expr)?),* $(,)?] |$property:pat_param| $body:expr) => {{
        let (trust, arguments) = (&$trust, ($({ $(let $value = $given;)? $value },)*));
        let closure = $crate::uncaptured(trust, &arguments, |$property, ($($value,)*)| $body);
        // Only a closure that captures nothing becomes a function pointer.
        let _: fn(_, _) -> _ = closure;
        // The types of the values are known now, so that a reference among them can be detected.
        let ($($value,)*) = &arguments;
        $({
            #[allow(unused_imports)]
            use $crate::IsOwned as _;
            $crate::Listed($value).check_owned();
        })*
        trust.apply_with(closure, arguments)
    }};
}

/// For [`delegate!`]: hands `closure` through, and lets the compiler see what its parameters are.
#[doc(hidden)]
pub fn uncaptured<T: 'static, V, U, F>(_: &Trust<T>, _: &V, closure: F) -> F
where
    F: FnOnce(&mut T, V) -> U + Copy,
{
    closure
}

/// For [`delegate!`]: a value of its list. A reference finds the method `check_owned` of its own,
/// which nothing may call, before it finds the one of [`IsOwned`]; so the compiler can say in words
/// what it would otherwise say of lifetimes.
#[doc(hidden)]
#[derive(Debug)]
pub struct Listed<'a, V>(pub &'a V);

impl<V: ?Sized> Listed<'_, &V> {
    #[doc(hidden)]
    pub fn check_owned(self)
    where
        V: SentByReference,
    {
    }
}

/// For [`delegate!`]: every value is owned, unless it is a reference.
#[doc(hidden)]
pub trait IsOwned: Sized {
    #[doc(hidden)]
    fn check_owned(self) {}
}
impl<V> IsOwned for Listed<'_, V> {}

/// For [`delegate!`]: what can be sent by a reference to it. Nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`delegate!` cannot send a reference (to `{Self}`) across the rack",
    label = "a value of its list is borrowed",
    note = "send an owned value under the same name, for example `[name = name.to_owned()]`"
)]
pub trait SentByReference {}

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
/// The result of the closure is the value of the macro, as with [`Trust::apply_with`]. A value
/// that the closure uses and the list forgets is an ordinary type error.
#[macro_export]
macro_rules! delegate {
    ($trust:expr, [$($value:ident),* $(,)?] |$property:pat_param| $body:expr) => {{
        let (trust, arguments) = (&$trust, ($($value,)*));
        let closure = $crate::uncaptured(trust, &arguments, |$property, ($($value,)*)| $body);
        // Only a closure that captures nothing becomes a function pointer.
        let _: fn(_, _) -> _ = closure;
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

//! `delegate!`: local values for a delegated closure, by name.
//!
//! A file of its own, because the compiler's messages about captured values point here.

#[cfg(doc)]
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
/// `name = expression` sends another value under a name. References cannot be sent; copy the values
/// that they refer to here:
///
/// ```ignore
/// let word: &str = "hello";
/// delegate!(counts, [word = word.to_owned(), by = 2 * n] |counts| *counts.entry(word).or_default() += by)
/// ```
///
/// The result of the closure is the value of the macro, as with [`Trust::apply_with`]. A value
/// that the closure uses and the list forgets is an ordinary type error.
///
/// An arrow names the call if it is not `apply`: `apply`, `launch` or `visit`, with the prefix `try_`
/// or the suffix `_then` or `_async`. A callback comes last:
///
/// ```ignore
/// delegate!(map => try_apply, [key] |map| map.remove(&key))?;
/// delegate!(map => apply_then, [key] |map| map.len(), |len| println!("{len} entries"));
/// delegate!(latch => launch, [other, n] |account| other.apply_with(|o, n| *o += n, n));
/// delegate!(trustee => visit, [level] || LEVEL.set(level));
/// ```
#[macro_export]
macro_rules! delegate {
    (@row apply $($rest:tt)*) => { $crate::delegate!(@property apply_with $($rest)*) };
    (@row try_apply $($rest:tt)*) => { $crate::delegate!(@property try_apply_with $($rest)*) };
    (@row apply_then $($rest:tt)*) => { $crate::delegate!(@property apply_with_then $($rest)*) };
    (@row try_apply_then $($rest:tt)*) => { $crate::delegate!(@property try_apply_with_then $($rest)*) };
    (@row apply_async $($rest:tt)*) => { $crate::delegate!(@property apply_with_async $($rest)*) };
    (@row launch $($rest:tt)*) => { $crate::delegate!(@latch launch_with $($rest)*) };
    (@row try_launch $($rest:tt)*) => { $crate::delegate!(@latch try_launch_with $($rest)*) };
    (@row launch_then $($rest:tt)*) => { $crate::delegate!(@latch launch_with_then $($rest)*) };
    (@row try_launch_then $($rest:tt)*) => { $crate::delegate!(@latch try_launch_with_then $($rest)*) };
    (@row launch_async $($rest:tt)*) => { $crate::delegate!(@latch launch_with_async $($rest)*) };
    (@row visit $($rest:tt)*) => { $crate::delegate!(@trustee visit_with $($rest)*) };
    (@row try_visit $($rest:tt)*) => { $crate::delegate!(@trustee try_visit_with $($rest)*) };
    (@row visit_then $($rest:tt)*) => { $crate::delegate!(@trustee visit_with_then $($rest)*) };
    (@row try_visit_then $($rest:tt)*) => { $crate::delegate!(@trustee try_visit_with_then $($rest)*) };
    (@row visit_async $($rest:tt)*) => { $crate::delegate!(@trustee visit_with_async $($rest)*) };
    (@row $other:ident $($rest:tt)*) => {
        ::core::compile_error!(concat!(
            "`delegate!` does not know `", stringify!($other), "`: write `apply`, `launch` or `visit`, \
             with `try_` in front, or `_then` or `_async` behind it"
        ))
    };
    (@without_names) => {
        ::core::compile_error!(
            "name the values to send: `delegate!(trust, [a, b] |t| ..)`; a closure that needs no values \
             is called without this macro: `trust.apply(|t| ..)`"
        )
    };
    (@property $($rest:tt)*) => { $crate::delegate!(@call property [fn(_, _) -> _] $($rest)*) };
    (@latch $($rest:tt)*) => { $crate::delegate!(@call latch [fn(_, _) -> _] $($rest)*) };
    (@trustee $($rest:tt)*) => { $crate::delegate!(@call trustee [fn(_) -> _] $($rest)*) };
    (
        @call $kind:ident [$pointer:ty] $method:ident
        ($to:expr) [$($value:ident $(= $given:expr)?),* $(,)?] ($($property:pat_param)?) ($body:expr)
        ($($then:expr)?)
    ) => {{
        let (to, arguments) = (&$to, ($({ $(let $value = $given;)? $value },)*));
        let closure =
            $crate::delegated::$kind(to, &arguments, |$($property,)? ($($value,)*)| $body);
        // Only a closure that captures nothing becomes a function pointer.
        let _: $pointer = closure;
        // The types of the values are known now, so that a reference among them can be detected.
        let ($($value,)*) = &arguments;
        $({
            #[allow(unused_imports)]
            use $crate::IsOwned as _;
            $crate::Listed($value).check_owned();
        })*
        to.$method(closure, arguments $(, $then)?)
    }};
    ($trust:expr, [$($list:tt)*] |$property:pat_param| $body:expr) => {
        $crate::delegate!(@row apply ($trust) [$($list)*] ($property) ($body) ())
    };
    (
        $to:expr => $method:ident, [$($list:tt)*] |$property:pat_param| $body:expr
        $(, $then:expr)? $(,)?
    ) => {
        $crate::delegate!(@row $method ($to) [$($list)*] ($property) ($body) ($($then)?))
    };
    ($to:expr => $method:ident, [$($list:tt)*] || $body:expr $(, $then:expr)? $(,)?) => {
        $crate::delegate!(@row $method ($to) [$($list)*] () ($body) ($($then)?))
    };
    ($to:expr $(=> $method:ident)?, | $($rest:tt)*) => { $crate::delegate!(@without_names) };
    ($to:expr $(=> $method:ident)?, || $($rest:tt)*) => { $crate::delegate!(@without_names) };
    ($to:expr $(=> $method:ident)?, move $($rest:tt)*) => { $crate::delegate!(@without_names) };
}

/// For [`delegate!`]: functions that return a closure unchanged and let the compiler infer the types of
/// its parameters from the trust or trustee that gets it.
#[doc(hidden)]
pub mod delegated {
    use crate::{Latch, Trust, Trustee};

    pub fn property<T: 'static, V, U, F>(_: &Trust<T>, _: &V, closure: F) -> F
    where
        F: FnOnce(&mut T, V) -> U + Copy,
    {
        closure
    }

    pub fn latch<T: 'static, V, U, F>(_: &Trust<Latch<T>>, _: &V, closure: F) -> F
    where
        F: FnOnce(&mut T, V) -> U + Copy,
    {
        closure
    }

    pub fn trustee<V, U, F>(_: &Trustee, _: &V, closure: F) -> F
    where
        F: FnOnce(V) -> U + Copy,
    {
        closure
    }
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

//! [`Delegable`]: closures that capture nothing, or with the `nightly` feature closures
//! that capture no reference (thesis 3.2.5); and what the trustee runs of them.

use std::any::type_name;
use std::marker::PhantomData;

use crate::codec::AsView;

/// A closure that may be delegated.
///
/// A closure crosses the rack by name, so it may capture nothing, and what it works with travels as
/// the explicit argument of the `_with` methods or of [`delegate!`](crate::delegate). A closure
/// that captures something does not compile:
///
/// ```text
/// error: the closure captures variables ... pass them as arguments
/// ```
///
/// # Tokens without bytes
///
/// [`delegate!`](crate::delegate) takes only closures that capture nothing, not even a value
/// without bytes. The methods cannot tell a capture without bytes from none: such a closure
/// compiles, and the trustee makes its own instance of the captured value, on any host. So a
/// zero-sized token, whose existence proves something, crosses the rack if it is `Copy` and `Send`:
///
/// - Where it proves something about its process (a device is open, a table is loaded), it must not
///   be both, or must have a field.
/// - Where it proves that the processor has a feature (`pulp` and `fearless_simd` have such
///   tokens), it holds on every host: hosts over TCP and RDMA compare the features of their
///   processors when they meet, and refuse each other if they differ, unless
///   `Rack::mixed_processors` allows it. Processes that share memory share the processor.
///
/// The trustee takes the request's word for it that its sender had such a token. A peer that breaks
/// the rules can name any delegated closure of the program, also one whose token no process has
/// ever made: it must not be what keeps memory safe where hosts are not trusted.
#[cfg(not(feature = "nightly"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be delegated: it captures something that cannot leave this thread",
    label = "captures a value that is not plain data",
    note = "a delegated closure captures nothing; pass values as arguments: \
            `trust.apply_with(|t, v| .., v)`, `delegate!(trust, [v] |t| ..)` or \
            `spawn_on_with(trustee, |v| .., v)`"
)]
pub trait Delegable: Copy + Send + 'static {}
#[cfg(not(feature = "nightly"))]
#[diagnostic::do_not_recommend]
impl<F: Copy + Send + 'static> Delegable for F {}

/// A closure that may be delegated: it captures nothing that refers to this process's memory.
///
/// # Tokens
///
/// A token, whose existence proves something, crosses the rack if it is `NoRef` and `Send`, whether
/// or not it is `Copy`: it is moved, to a process that may have made one of its own. Where it
/// proves something about its process, exclude it: `impl !NoRef for Token {}`.
#[cfg(feature = "nightly")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be delegated: it captures something that cannot leave this thread",
    label = "captures a reference, a pointer or heap data",
    note = "pass owned data as arguments: `trust.apply_with(|t, v| .., v)`, \
            `delegate!(trust, [v] |t| ..)` or `spawn_on_with(trustee, |v| .., v)`"
)]
pub trait Delegable: crate::NoRef + Send + 'static {}
#[cfg(feature = "nightly")]
#[diagnostic::do_not_recommend]
impl<F: crate::NoRef + Send + 'static> Delegable for F {}

/// Checks, when a delegated call is instantiated, that its closure captures nothing.
#[inline(always)]
pub(crate) const fn check_captures<F>() {
    #[cfg(not(feature = "nightly"))]
    assert!(
        size_of::<F>() == 0,
        "a delegated closure captures variables or is a function pointer, and only its name crosses \
         the rack: name the function itself; pass the values as arguments, with \
         `apply_with(|t, args| .., args)`, `delegate!(trust, [args] |t| ..)` or \
         `spawn_on_with(trustee, |args| .., args)`"
    );
    #[cfg(feature = "nightly")]
    assert!(
        size_of::<F>() <= crate::closure::capture::MAX_CAPTURE,
        "a delegated closure captures more than a request has room for: pass large values as \
         arguments, with `apply_with`"
    );
}

/// How often a hook of [`Trust::with_prefetch`](crate::Trust::with_prefetch) has been called for a
/// request. What the first call has asked for is there, or nearly, when the second comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The hook asks for what it finds by the arguments, such as the entry of a key.
    First,
    /// The hook asks for what that refers to, such as the entry's value.
    Second,
}

/// A closure with or without an argument, so that both are one kind of call.
pub(crate) trait Invoke<T, V> {
    type Output;
    /// Whether it has a hook for the requests that come next.
    const LOOKS_AHEAD: bool = false;
    fn invoke(self, property: &mut T, arguments: V) -> Self::Output;
    /// The hook; see [`ahead`](crate::closure::ahead).
    fn look_ahead(&self, _property: &T, _arguments: &V, _step: Step) {}
    fn name() -> &'static str;
}

/// A closure of the property alone.
#[derive(Clone, Copy)]
pub(crate) struct Plain<F>(pub(crate) F);

impl<T, U, F: FnOnce(&mut T) -> U> Invoke<T, ()> for Plain<F> {
    type Output = U;
    #[inline(always)]
    fn invoke(self, property: &mut T, (): ()) -> U {
        (self.0)(property)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// A closure of the property and arguments.
#[derive(Clone, Copy)]
pub(crate) struct With<F>(pub(crate) F);

impl<T, V, U, F: FnOnce(&mut T, V) -> U> Invoke<T, V> for With<F> {
    type Output = U;
    #[inline(always)]
    fn invoke(self, property: &mut T, arguments: V) -> U {
        (self.0)(property, arguments)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// As [`Invoke`], for closures that refer to a part of the property.
pub(crate) trait InvokeRef<T, V> {
    type Output: AsView + ?Sized + 'static;
    /// As [`Invoke::LOOKS_AHEAD`].
    const LOOKS_AHEAD: bool = false;
    fn invoke_ref(self, property: &mut T, arguments: V) -> Option<&Self::Output>;
    /// As [`Invoke::look_ahead`].
    fn look_ahead(&self, _property: &T, _arguments: &V, _step: Step) {}
    fn name() -> &'static str;
}

/// A closure of the property alone that refers to an `R` in it.
pub(crate) struct PlainRef<F, R: ?Sized>(F, PhantomData<fn(&R)>);

impl<F, R: ?Sized> PlainRef<F, R> {
    #[inline(always)]
    pub(crate) fn new(closure: F) -> Self {
        PlainRef(closure, PhantomData)
    }
}

impl<T, F, R> InvokeRef<T, ()> for PlainRef<F, R>
where
    F: for<'a> FnOnce(&'a mut T) -> Option<&'a R>,
    R: AsView + ?Sized + 'static,
{
    type Output = R;
    #[inline(always)]
    fn invoke_ref(self, property: &mut T, (): ()) -> Option<&R> {
        (self.0)(property)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// A closure of the property and arguments that refers to an `R` in the property.
pub(crate) struct WithRef<F, R: ?Sized>(pub(super) F, PhantomData<fn(&R)>);

impl<F, R: ?Sized> WithRef<F, R> {
    #[inline(always)]
    pub(crate) fn new(closure: F) -> Self {
        WithRef(closure, PhantomData)
    }
}

impl<T, V, F, R> InvokeRef<T, V> for WithRef<F, R>
where
    F: for<'a> FnOnce(&'a mut T, V) -> Option<&'a R>,
    R: AsView + ?Sized + 'static,
{
    type Output = R;
    #[inline(always)]
    fn invoke_ref(self, property: &mut T, arguments: V) -> Option<&R> {
        (self.0)(property, arguments)
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

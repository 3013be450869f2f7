//! From a closure and its arguments to a request on its way.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use primitive::limits::INLINE_BYTES;
use serde::Serialize;

use crate::client::completion::Completion;
use crate::client::outbox::Outbox;
use crate::client::outcome::Outcome;
use crate::client::request::{Arguments, Request};
use crate::client::viewing::Viewing;
use crate::client::waiter::Waiter;
use crate::closure::call::{Apply, ApplyEach, ApplyRef, may_serve_runs, serves_runs};
use crate::closure::capture::with_capture;
use crate::closure::invoke::{Invoke, InvokeRef};
use crate::closure::lent::{ApplyLent, InvokeLent};
use crate::closure::registry::{Delegated, closure_id};
use crate::codec;
use crate::codec::{AsView, Lend, Plain, Portable};
use crate::error::{BadValue, CallResult, CodecError, DelegateError, NO_SUCH_THREAD, outside};
use crate::node::awaited::CallSite;
use crate::node::awaits::AwaitsReply;
use crate::node::send::fail;
use crate::node::state::Node;
use crate::wire::copy::STACK_BYTES;
use crate::wire::words::WORD;

/// A property on another thread, and its type.
pub(crate) struct Target<'a, T> {
    pub(crate) home: u32,
    pub(crate) property: u32,
    /// The outbox to the thread, if that has been looked up.
    pub(crate) outbox: Option<&'a Outbox>,
    pub(crate) _property: PhantomData<fn(T)>,
}

impl<'a, T> Target<'a, T> {
    #[cfg_attr(optimised, inline(always))]
    fn place(&self) -> Place<'a> {
        Place { home: self.home, property: self.property, outbox: self.outbox }
    }

    /// A request of the property.
    #[cfg_attr(optimised, inline(always))]
    fn request<'b, K: Kind>(&self, arguments: Arguments<'b>) -> Request<'b> {
        let (closure, reply_words) = (closure_id::<K>(), K::reply_words());
        Request { property: self.property, closure, arguments, reply_words }
    }
}

/// A [`Target`], without the type of its property, of which functions would have a copy for each.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    home: u32,
    property: u32,
    outbox: Option<&'a Outbox>,
}

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

impl Node {
    /// Sends a request, made at `place`, and waits for its result.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn call<T, I, V>(
        &self,
        target: Target<'_, T>,
        invoke: I,
        arguments: V,
        place: CallSite,
    ) -> CallResult<I::Output>
    where
        T: 'static,
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let Some(waiter) = Waiter::new() else { return Err(outside()) };
        self.request(target, invoke, &arguments, waiter.wake());
        // The arguments are dropped when this returns: their destructors may wait, which must not
        // come between the request and this wait.
        waiter.wait(place, AwaitsReply::of)
    }

    /// As [`call`](Self::call), of a closure that refers to a part of the property. `view` is called
    /// with what it has found, in the slot, before that is used again.
    ///
    /// # Panics
    /// If `view` does.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn call_ref<T, I, V, F, U>(
        &self,
        target: Target<'_, T>,
        invoke: I,
        arguments: V,
        view: F,
        place: CallSite,
    ) -> CallResult<U>
    where
        T: 'static,
        I: InvokeRef<T, V> + 'static,
        V: Portable,
        F: for<'a> FnOnce(Option<<I::Output as AsView>::View<'a>>) -> U,
    {
        let Some(viewing) = Viewing::<I::Output, F, U>::new(view) else { return Err(outside()) };
        self.request_ref(target, invoke, &arguments, viewing.end());
        // As in `call`.
        viewing.wait(place, AwaitsReply::of)
    }

    /// Encodes a request and sends it. No code of users runs after the sending.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn request<T, I, V, C>(
        &self,
        target: Target<'_, T>,
        invoke: I,
        arguments: &V,
        completion: C,
    ) where
        T: 'static,
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        self.request_as::<Apply<T, V, I>, T, I, V, C>(target, invoke, arguments, completion);
    }

    /// As [`request`](Self::request), of a closure that refers to a part of the property.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn request_ref<T, I, V, C>(
        &self,
        target: Target<'_, T>,
        invoke: I,
        arguments: &V,
        completion: C,
    ) where
        T: 'static,
        I: InvokeRef<T, V> + 'static,
        V: Portable,
        C: Completion + 'static,
    {
        self.request_as::<ApplyRef<T, V, I>, T, I, V, C>(target, invoke, arguments, completion);
    }

    /// Sends a request with `entries` for a closure of type `F`, of which they begin with the bytes.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn request_each<T, K, V, F, C>(
        &self,
        target: Target<'_, T>,
        entries: &[u8],
        completion: C,
    ) where
        T: 'static,
        K: AsView + ?Sized + 'static,
        V: Portable,
        F: for<'a> Fn(&mut T, K::View<'a>, V),
        C: Completion + 'static,
    {
        if entries.len() > INLINE_BYTES {
            let kind = (closure_id::<ApplyEach<T, K, V, F>>(), 0);
            return self.send_large(target.place(), kind, entries.to_vec(), completion);
        }
        let arguments = Arguments::Encoded(entries);
        self.send_request(
            target.place(),
            target.request::<ApplyEach<T, K, V, F>>(arguments),
            completion,
        );
    }

    /// As [`request`](Self::request), of any kind.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn request_as<K, T, I, V, C>(
        &self,
        target: Target<'_, T>,
        invoke: I,
        arguments: &V,
        completion: C,
    ) where
        K: Kind,
        V: Portable,
        C: Completion + 'static,
    {
        if const { size_of::<I>() > 0 || !codec::may_be_plain::<V>() } {
            return self.request_encoded::<K, T, I, V, C>(target, invoke, arguments, completion);
        }
        if const { K::MAY_HAVE_RUNS }
            && let Some(plain) = plain_in_run::<K, V>(arguments)
        {
            std::mem::forget(invoke);
            return self.send_plain::<K, T, C>(target, plain, completion);
        }
        if let Some(plain) = codec::to_plain(arguments) {
            // A closure without bytes is made anew at the trustee, so this one is gone.
            std::mem::forget(invoke);
            let request = target.request::<K>(Arguments::Plain(plain));
            return self.send_request(target.place(), request, completion);
        }
        self.request_encoded::<K, T, I, V, C>(target, invoke, arguments, completion);
    }

    /// The error of a call of the thread with this number, whose arguments, a `V`, cannot be encoded.
    #[cold]
    pub(crate) fn unencodable<V>(&self, home: u32, source: CodecError) -> DelegateError {
        let trustee = self.thread_numbered(home).unwrap_or(self.me);
        BadValue::unencodable::<V>(source).into_arguments_error(trustee)
    }

    /// Encodes a request of any kind and sends it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn request_encoded<K, T, I, V, C>(
        &self,
        target: Target<'_, T>,
        invoke: I,
        arguments: &V,
        completion: C,
    ) where
        K: Kind,
        V: Serialize,
        C: Completion + 'static,
    {
        let (to, kind) = (target.place(), (closure_id::<K>(), K::reply_words()));
        if const { size_of::<I>() == 0 } {
            // It is made anew at the trustee, so this one is gone.
            std::mem::forget(invoke);
            self.encode(to, kind, &[], arguments, completion);
        } else {
            with_capture(invoke, |capture| self.encode(to, kind, capture, arguments, completion));
        }
    }

    /// As [`request_encoded`](Self::request_encoded), of the closure with this number, for whose reply so
    /// many words are kept: one function for all that have arguments and completions of these types.
    fn encode<V, C>(
        &self,
        to: Place<'_>,
        (closure, reply_words): (u32, usize),
        capture: &[u8],
        arguments: &V,
        completion: C,
    ) where
        V: Serialize,
        C: Completion + 'static,
    {
        let _stay = self.stay();
        let mut encoded = codec::Encoded::in_room();
        encoded.put(capture);
        if let Err(error) = self.encode_arguments(&mut encoded, arguments, to.home, C::HEARS_PANICS)
        {
            return completion.complete(Outcome::Failed(&error));
        }
        if encoded.len() > INLINE_BYTES {
            let bytes = encoded.take_spilled();
            return self.send_large(to, (closure, reply_words), bytes, completion);
        }
        let arguments = Arguments::Encoded(encoded.bytes());
        let request = Request { property: to.property, closure, arguments, reply_words };
        self.send_request(to, request, completion);
    }

    /// Encodes the arguments of a call of the thread with this number. If it `catches`, a panic of their own
    /// code is an error.
    #[inline]
    fn encode_arguments<V: Serialize>(
        &self,
        encoded: &mut codec::Encoded<STACK_BYTES, codec::Room>,
        arguments: &V,
        home: u32,
        catches: bool,
    ) -> Result<(), Box<DelegateError>> {
        let mut encode = || encoded.encode(arguments);
        let result = if catches {
            catch_unwind(AssertUnwindSafe(encode))
                .unwrap_or_else(|panic| Err(CodecError::of_panic(panic)))
        } else {
            encode()
        };
        result.map_err(|source| Box::new(self.unencodable::<V>(home, source)))
    }

    /// Sends a request of a property, named by its thread's number and its own, whose encoded arguments
    /// are too long for a slot. They are not copied on their way to the lane.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_large<C: Completion + 'static>(
        &self,
        to: Place<'_>,
        (closure, reply_words): (u32, usize),
        bytes: Vec<u8>,
        completion: C,
    ) {
        let len = bytes.len();
        let bytes = Cell::new(bytes);
        let arguments = Arguments::Large(&bytes, len);
        let request = Request { property: to.property, closure, arguments, reply_words };
        self.send_request(to, request, completion);
    }

    #[cfg_attr(optimised, inline(always))]
    fn send_plain<K, T, C>(&self, target: Target<'_, T>, plain: Plain, completion: C)
    where
        K: Kind,
        C: Completion + 'static,
    {
        let Some(outbox) = target.outbox.or_else(|| self.outboxes.get(target.home)) else {
            return fail(completion, &NO_SUCH_THREAD);
        };
        self.send_plain_by::<K, C>(outbox, outbox.name_of(target.property), plain, completion);
    }

    #[cfg_attr(optimised, inline(always))]
    fn send_request<C>(&self, to: Place<'_>, request: Request<'_>, completion: C)
    where
        C: Completion + 'static,
    {
        match to.outbox {
            Some(outbox) => self.send_by(outbox, request, completion),
            None => self.send(to.home, request, completion),
        }
    }
}

/// The arguments of a request of a kind that may have runs, if it may be one of a run.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn plain_in_run<K: Kind, V: Portable>(arguments: &V) -> Option<Plain> {
    if K::has_runs() { codec::to_plain(arguments) } else { None }
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

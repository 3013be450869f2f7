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
use crate::closure::call::{Apply, ApplyEach, ApplyRef};
use crate::closure::capture::with_capture;
use crate::closure::invoke::{Invoke, InvokeRef};
use crate::closure::registry::closure_id;
use crate::codec::{self, AsView, Plain, Portable};
use crate::error::{BadValue, CallResult, CodecError, DelegateError, NO_SUCH_THREAD, outside};
use crate::node::awaited::CallSite;
use crate::node::awaits::AwaitsReply;
use crate::node::kind::Kind;
use crate::node::send::fail;
use crate::node::state::Node;
use crate::wire::copy::STACK_BYTES;

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
    fn destination(&self) -> Destination<'a> {
        Destination { home: self.home, property: self.property, outbox: self.outbox }
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
pub(crate) struct Destination<'a> {
    home: u32,
    property: u32,
    outbox: Option<&'a Outbox>,
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
            let closure = (closure_id::<ApplyEach<T, K, V, F>>(), 0);
            return self.send_large(target.destination(), closure, entries.to_vec(), completion);
        }
        let arguments = Arguments::Encoded(entries);
        self.send_request(
            target.destination(),
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
        const { assert!(C::IN_RUNS || !K::MAY_HAVE_RUNS, "its completions have no code for runs") };
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
            return self.send_request(target.destination(), request, completion);
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
        let to = target.destination();
        let closure = (closure_id::<K>(), K::reply_words());
        if const { size_of::<I>() == 0 } {
            // It is made anew at the trustee, so this one is gone.
            std::mem::forget(invoke);
            self.encode(to, closure, &[], arguments, completion);
        } else {
            with_capture(invoke, |capture| {
                self.encode(to, closure, capture, arguments, completion)
            });
        }
    }

    /// As [`request_encoded`](Self::request_encoded), of the closure with this number, for whose reply so
    /// many words are kept: one function for all that have arguments and completions of these types.
    fn encode<V, C>(
        &self,
        to: Destination<'_>,
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
        to: Destination<'_>,
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
    fn send_request<C>(&self, to: Destination<'_>, request: Request<'_>, completion: C)
    where
        C: Completion + 'static,
    {
        match to.outbox {
            Some(outbox) => self.send_by(outbox, request, completion),
            None => self.send(to.home, request, completion),
        }
    }
}

/// The arguments of a request, if it may be one of a run.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn plain_in_run<K: Kind, V: Portable>(arguments: &V) -> Option<Plain> {
    if K::has_runs() { codec::to_plain(arguments) } else { None }
}

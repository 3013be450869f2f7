//! One delegated call, seen from the trustee: take the arguments out of the slot, run the closure
//! on the property, put the reply where the request was.

use std::marker::PhantomData;

use primitive::Records;
use primitive::sync::Ordering;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::closure::ahead;
use crate::closure::batch::{Batch, Received};
use crate::closure::capture::rebuild;
use crate::closure::invoke::{Invoke, InvokeRef};
use crate::closure::registry::{Delegated, Description};
use crate::codec::{self, AsView, Plain};
use crate::error::{BadValue, CodecError, Refusal};
use crate::wire::words::RunLayout;

/// The kind of call that `apply` and its relatives make.
pub(crate) struct Apply<T, V, I>(PhantomData<fn(T, V, I)>);

impl<T, V, I> Delegated for Apply<T, V, I>
where
    T: 'static,
    V: DeserializeOwned + 'static,
    I: Invoke<T, V>,
    I::Output: Serialize + 'static,
{
    #[cfg_attr(optimised, inline(always))]
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        if const { I::LOOKS_AHEAD } {
            // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
            let property = unsafe { &mut *property.cast::<T>() };
            return ahead::each_of_run(
                batch,
                request,
                property,
                take::<V, I>,
                I::look_ahead,
                |batch, property, invoke, arguments| {
                    let result = invoke.invoke(property, arguments);
                    batch.reply(request, result);
                },
            );
        }
        // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
        let property = unsafe { &mut *property.cast::<T>() };
        if serves_runs::<T, V, I>() && request.head.is_run() {
            return run_plain::<T, V, I>(property, batch);
        }
        let mut serve = |batch: &mut Batch<'_>, invoke: I, arguments: V| {
            let result = invoke.invoke(property, arguments);
            batch.reply(request, result);
        };
        if !serves_runs::<T, V, I>() {
            return each_of_run(batch, request, serve);
        }
        // What follows is another request, or a run.
        match take::<V, I>(batch, request) {
            Ok((invoke, arguments)) => serve(batch, invoke, arguments),
            Err(refusal) => batch.refuse_by(&refusal),
        }
        batch.pass(request);
    }

    fn describe() -> Description {
        let runs = serves_runs::<T, V, I>().then_some(RunLayout::WORD);
        Description { runs, ..Description::of::<T>(I::name()) }
    }
}

/// Whether such calls are sent in runs that share their head: arguments and result are a word each, or
/// nothing, and the closure has no bytes.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn serves_runs<T, V, I>() -> bool
where
    V: 'static,
    I: Invoke<T, V>,
    I::Output: 'static,
{
    size_of::<I>() == 0
        && !I::LOOKS_AHEAD
        && codec::plain_words::<V>().is_some()
        && codec::plain_words::<I::Output>().is_some()
}

/// The kind of call that `apply_ref` and its relatives make.
pub(crate) struct ApplyRef<T, V, I>(PhantomData<fn(T, V, I)>);

impl<T, V, I> Delegated for ApplyRef<T, V, I>
where
    T: 'static,
    V: DeserializeOwned + 'static,
    I: InvokeRef<T, V>,
{
    #[cfg_attr(optimised, inline(always))]
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        if const { I::LOOKS_AHEAD } {
            // SAFETY: as in `Apply::run`.
            let property = unsafe { &mut *property.cast::<T>() };
            return ahead::each_of_run(
                batch,
                request,
                property,
                take::<V, I>,
                I::look_ahead,
                |batch, property, invoke, arguments| {
                    let found = invoke.invoke_ref(property, arguments);
                    batch.reply_view(request, &found.map(AsView::as_view));
                },
            );
        }
        each_of_run(batch, request, |batch, invoke: I, arguments: V| {
            // SAFETY: as in `Apply::run`; what the closure returns refers to the property, and is gone
            // before the next request is served.
            let property = unsafe { &mut *property.cast::<T>() };
            let found = invoke.invoke_ref(property, arguments);
            batch.reply_view(request, &found.map(AsView::as_view));
        });
    }

    fn describe() -> Description {
        Description::of::<T>(I::name())
    }
}

/// The kind of call that runs a closure once for each of many keys and values.
pub(crate) struct ApplyEach<T, K: ?Sized, V, F>(PhantomData<fn(T, &K, V, F)>);

impl<T, K, V, F> Delegated for ApplyEach<T, K, V, F>
where
    T: 'static,
    K: AsView + ?Sized + 'static,
    V: DeserializeOwned + 'static,
    F: for<'a> Fn(&mut T, K::View<'a>, V),
{
    #[cfg_attr(optimised, inline(always))]
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        let result = batch.payload(request, |bytes| {
            let Some((capture, entries)) = bytes.split_at_checked(size_of::<F>()) else {
                return Err(cut_short::<(K::View<'_>, V)>(CUT_CAPTURE));
            };
            // SAFETY: as in `take_encoded`: the bytes of a closure of this type, which its sender has
            // forgotten.
            let closure = unsafe { rebuild::<F>(capture) };
            // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
            let property = unsafe { &mut *property.cast::<T>() };
            run_each::<T, K, V, F>(property, &closure, entries, request.head.is_bulk())
                .map_err(Refusal::Arguments)
        });
        match result {
            Ok(()) => batch.reply(request, ()),
            Err(refusal) => batch.refuse_by(&refusal),
        }
        batch.pass(request);
    }

    fn describe() -> Description {
        Description::of::<T>(std::any::type_name::<F>())
    }
}

/// Runs `closure` for each of the entries that are in front of `bytes`, or are `exactly` these.
///
/// # Errors
/// An entry could not be decoded; those before it have run.
pub(crate) fn run_each<T, K, V, F>(
    property: &mut T,
    closure: &F,
    bytes: &[u8],
    exactly: bool,
) -> Result<(), BadValue>
where
    K: AsView + ?Sized,
    V: DeserializeOwned,
    F: for<'a> Fn(&mut T, K::View<'a>, V),
{
    let run = |key, value| closure(property, key, value);
    codec::decode_entries::<K::View<'_>, V>(bytes, exactly, run)
        .map_err(BadValue::undecodable::<(K::View<'_>, V)>)
}

/// Runs `run` with closure and arguments of a request, and of those after it that are the same but
/// for their arguments. It writes the reply.
#[cfg_attr(optimised, inline(always))]
fn each_of_run<V, I>(
    batch: &mut Batch<'_>,
    request: Received,
    mut run: impl FnMut(&mut Batch<'_>, I, V),
) where
    V: DeserializeOwned + 'static,
{
    loop {
        match take::<V, I>(batch, request) {
            Ok((invoke, arguments)) => run(batch, invoke, arguments),
            Err(refusal) => batch.refuse_by(&refusal),
        }
        batch.pass(request);
        if request.head.is_bulk() || !batch.is_next(request) || batch.outsized.is_some() {
            return;
        }
    }
}

/// A run of requests with plain arguments and results. Where it has come to is the batch's place when it
/// ends, also when a closure panics.
struct PlainRun<'a, 'b> {
    batch: &'a mut Batch<'b>,
    requests: Records<'b>,
}

impl Drop for PlainRun<'_, '_> {
    #[cfg_attr(optimised, inline(always))]
    fn drop(&mut self) {
        self.batch.at = self.requests.position();
        self.batch.left = self.requests.left();
    }
}

/// Serves what is left of a run of requests, whose arguments and results are a word each, or none.
/// Not part of its caller: only as an argument is the property known to be apart from the words of
/// the slot, so that it need not be loaded and stored for each request.
#[inline(never)]
fn run_plain<T, V, I>(property: &mut T, batch: &mut Batch<'_>)
where
    V: 'static,
    I: Invoke<T, V>,
    I::Output: 'static,
{
    let requests = batch.slot.part(0, batch.at + batch.left).records(batch.at, 1);
    let mut run = PlainRun { batch, requests };
    while run.requests.left() > 0 {
        // SAFETY: a closure without bytes, see `rebuild`.
        let invoke = unsafe { rebuild::<I>(&[]) };
        let word = || run.requests.load(0);
        let result = invoke.invoke(property, codec::from_plain(word).expect("a plain type"));
        if let Some(Plain::Word(word)) = codec::to_plain(&result) {
            run.requests.store(0, word);
        }
        run.requests.pass();
    }
}

/// Takes closure and arguments out of a request; or returns what is wrong with it.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn take<V, I>(batch: &mut Batch<'_>, request: Received) -> Result<(I, V), Refusal>
where
    V: DeserializeOwned + 'static,
{
    if let (0, Some(words)) = (size_of::<I>(), codec::plain_words::<V>()) {
        if request.words >= words {
            let word = || batch.slot.load(batch.at + 1, Ordering::Relaxed);
            // SAFETY: a closure without bytes, see `rebuild`.
            let invoke = unsafe { rebuild::<I>(&[]) };
            return Ok((invoke, codec::from_plain(word).expect("a plain type")));
        }
        return Err(cut_short::<V>("the request is shorter than its argument"));
    }
    take_encoded(batch, request)
}

pub(super) const CUT_CAPTURE: &str = "the request is shorter than what its closure captures";

#[cold]
pub(super) fn cut_short<V>(reason: &str) -> Refusal {
    Refusal::Arguments(BadValue::undecodable::<V>(CodecError(reason.to_owned())))
}

#[inline]
fn take_encoded<V, I>(batch: &mut Batch<'_>, request: Received) -> Result<(I, V), Refusal>
where
    V: DeserializeOwned,
{
    batch.payload(request, |bytes| {
        let Some((capture, arguments)) = bytes.split_at_checked(size_of::<I>()) else {
            return Err(cut_short::<V>(CUT_CAPTURE));
        };
        let arguments = if request.head.is_bulk() {
            codec::decode::<V>(arguments)
        } else {
            // The request has room for its result, too: what follows the arguments is left over
            // from earlier batches.
            codec::decode_front::<V>(arguments)
        };
        let arguments =
            arguments.map_err(|error| Refusal::Arguments(BadValue::undecodable::<V>(error)))?;
        // SAFETY: these are the bytes that `with_capture` took of a closure of this very type; the
        // sender forgot it, so this is a move. (An honest sender: see `rebuild`, and `noref.rs` for
        // closures with bytes.)
        Ok((unsafe { rebuild::<I>(capture) }, arguments))
    })
}

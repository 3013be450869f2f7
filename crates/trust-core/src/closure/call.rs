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
        if const { may_serve_runs::<T, V, I>() }
            && serves_runs::<T, V, I>()
            && request.head.is_run()
        {
            return run_plain::<T, V, I>(property, batch);
        }
        // Equal requests of such a kind would be a run: what follows is another request, or a run.
        let alone = serves_runs::<T, V, I>();
        each_of_run(batch, request, alone, |batch, invoke: I, arguments: V| {
            let result = invoke.invoke(property, arguments);
            batch.reply(request, result);
        });
    }

    fn describe() -> Description {
        let runs = serves_runs::<T, V, I>().then_some(RunLayout::WORD);
        Description { runs, ..Description::of::<T, I>(I::name()) }
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
    (const { may_serve_runs::<T, V, I>() })
        && codec::plain_words::<V>().is_some()
        && codec::plain_words::<I::Output>().is_some()
}

/// As [`serves_runs`], as far as it can be told in a `const` block ([`codec::may_be_plain`]).
pub(crate) const fn may_serve_runs<T, V, I: Invoke<T, V>>() -> bool {
    size_of::<I>() == 0
        && !I::LOOKS_AHEAD
        && codec::may_be_plain::<V>()
        && codec::may_be_plain::<I::Output>()
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
        each_of_run(batch, request, false, |batch, invoke: I, arguments: V| {
            // SAFETY: as in `Apply::run`; what the closure returns refers to the property, and is gone
            // before the next request is served.
            let property = unsafe { &mut *property.cast::<T>() };
            let found = invoke.invoke_ref(property, arguments);
            batch.reply_view(request, &found.map(AsView::as_view));
        });
    }

    fn describe() -> Description {
        Description::of::<T, I>(I::name())
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
            // SAFETY: as in `take_captured`: the bytes of a closure of this type, which its sender has
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
        Description::of::<T, F>(std::any::type_name::<F>())
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
/// for their arguments, unless it is known to be `alone`. It writes the reply.
#[cfg_attr(optimised, inline(always))]
fn each_of_run<V, I>(
    batch: &mut Batch<'_>,
    request: Received,
    alone: bool,
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
        if alone || request.head.is_bulk() || !batch.is_next(request) || batch.outsized.is_some() {
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
    if const { size_of::<I>() > 0 } {
        return take_captured(batch, request);
    }
    let arguments = take_arguments::<V>(batch, request)?;
    // SAFETY: a closure without bytes, see `rebuild`.
    Ok((unsafe { rebuild::<I>(&[]) }, arguments))
}

/// As [`take`], of a closure without bytes: one function for all that have arguments of this type.
#[inline]
fn take_arguments<V>(batch: &mut Batch<'_>, request: Received) -> Result<V, Refusal>
where
    V: DeserializeOwned + 'static,
{
    if let Some(words) = codec::plain_words::<V>() {
        if request.words >= words {
            let word = || batch.slot.load(batch.at + 1, Ordering::Relaxed);
            return Ok(codec::from_plain(word).expect("a plain type"));
        }
        return Err(cut_short::<V>("the request is shorter than its argument"));
    }
    batch.payload(request, |bytes| decode_arguments(bytes, request))
}

/// As [`take`], of a closure with captured values.
#[inline]
fn take_captured<V, I>(batch: &mut Batch<'_>, request: Received) -> Result<(I, V), Refusal>
where
    V: DeserializeOwned,
{
    batch.payload(request, |bytes| {
        let Some((capture, arguments)) = bytes.split_at_checked(size_of::<I>()) else {
            return Err(cut_short::<V>(CUT_CAPTURE));
        };
        let arguments = decode_arguments(arguments, request)?;
        // SAFETY: these are the bytes that `with_capture` took of a closure of this very type; the
        // sender forgot it, so this is a move. (An honest sender: see `rebuild`, and `noref.rs` for
        // closures with bytes.)
        Ok((unsafe { rebuild::<I>(capture) }, arguments))
    })
}

#[cfg_attr(optimised, inline(always))]
fn decode_arguments<V: DeserializeOwned>(bytes: &[u8], request: Received) -> Result<V, Refusal> {
    let arguments = if request.head.is_bulk() {
        codec::decode::<V>(bytes)
    } else {
        // The request has room for its result, too: what follows the arguments is left over from
        // earlier batches.
        codec::decode_front::<V>(bytes)
    };
    arguments.map_err(|error| Refusal::Arguments(BadValue::undecodable::<V>(error)))
}

pub(super) const CUT_CAPTURE: &str = "the request is shorter than what its closure captures";

#[cold]
pub(super) fn cut_short<V>(reason: &str) -> Refusal {
    Refusal::Arguments(BadValue::undecodable::<V>(CodecError(reason.to_owned())))
}

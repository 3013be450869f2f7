//! One delegated call whose arguments are lent, seen from the trustee: they stay in memory of this
//! thread, into which the request is copied, and the closure sees them there.
//!
//! With a hook it looks ahead as [`ahead`](crate::closure::ahead) does. The requests of a run lie one
//! after the other in the slot, so those that are looked at together are copied out together:
//!
//! ```text
//!   slot               | head | arguments 1 | head | arguments 2 | ..
//!   copied at once            | arguments 1 | head | arguments 2 | ..
//!   served from there
//! ```

use std::any::type_name;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use primitive::drop_payload;
use serde::Serialize;

use crate::closure::ahead::{Ahead, GROUP};
use crate::closure::batch::{Batch, Received};
use crate::closure::call::{CUT_CAPTURE, cut_short};
use crate::closure::capture::rebuild;
use crate::closure::invoke::{Step, With, WithRef};
use crate::closure::registry::{Delegated, Description};
use crate::codec::{self, AsView, Lend};
use crate::error::{BadValue, Refusal};
use crate::wire::copy::copied_out;
use crate::wire::words::WORD;

/// As [`Invoke`](crate::closure::invoke::Invoke), for closures whose arguments are lent.
pub(crate) trait InvokeLent<T, V: Lend> {
    /// What the closure returns, or refers to.
    type Output<'a>
    where
        T: 'a;
    /// The part of the output that fits in place of the request.
    type InPlace: 'static;
    /// Whether it has a hook for the requests that come next.
    const LOOKS_AHEAD: bool = false;
    fn invoke_lent<'a>(self, property: &'a mut T, arguments: V::Lent<'_>) -> Self::Output<'a>;
    /// Replies to a request with what its closure has returned.
    fn reply(output: Self::Output<'_>, batch: &mut Batch<'_>, request: Received);
    /// The hook; see [`ahead`](crate::closure::ahead).
    fn look_ahead(&self, _property: &T, _arguments: &V::Lent<'_>, _step: Step) {}
    fn name() -> &'static str;
}

impl<T, V, U, F> InvokeLent<T, V> for With<F>
where
    T: 'static,
    V: Lend,
    F: for<'b> FnOnce(&mut T, V::Lent<'b>) -> U,
    U: Serialize + 'static,
{
    type Output<'a> = U;
    type InPlace = U;
    #[inline(always)]
    fn invoke_lent(self, property: &mut T, arguments: V::Lent<'_>) -> U {
        (self.0)(property, arguments)
    }
    #[inline(always)]
    fn reply(output: U, batch: &mut Batch<'_>, request: Received) {
        batch.reply(request, output);
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// Only the trustee knows a view's length; a longer one stands apart.
impl<T, V, F, R> InvokeLent<T, V> for WithRef<F, R>
where
    T: 'static,
    V: Lend,
    F: for<'a, 'b> FnOnce(&'a mut T, V::Lent<'b>) -> Option<&'a R>,
    R: AsView + ?Sized + 'static,
{
    type Output<'a> = Option<&'a R>;
    type InPlace = ();
    #[inline(always)]
    fn invoke_lent<'a>(self, property: &'a mut T, arguments: V::Lent<'_>) -> Option<&'a R> {
        (self.0)(property, arguments)
    }
    #[inline(always)]
    fn reply(output: Option<&R>, batch: &mut Batch<'_>, request: Received) {
        batch.reply_view(request, &output.map(AsView::as_view));
    }
    fn name() -> &'static str {
        type_name::<F>()
    }
}

impl<T, V, H, I> InvokeLent<T, V> for Ahead<H, I>
where
    T: 'static,
    V: Lend,
    H: for<'a> Fn(&T, &V::Lent<'a>, Step),
    I: InvokeLent<T, V>,
{
    type Output<'a> = I::Output<'a>;
    type InPlace = I::InPlace;
    const LOOKS_AHEAD: bool = true;
    #[inline(always)]
    fn invoke_lent<'a>(self, property: &'a mut T, arguments: V::Lent<'_>) -> I::Output<'a> {
        self.invoke.invoke_lent(property, arguments)
    }
    #[inline(always)]
    fn reply(output: I::Output<'_>, batch: &mut Batch<'_>, request: Received) {
        I::reply(output, batch, request);
    }
    #[inline(always)]
    fn look_ahead(&self, property: &T, arguments: &V::Lent<'_>, step: Step) {
        (self.hook)(property, arguments, step);
    }
    fn name() -> &'static str {
        I::name()
    }
}

/// The kind of call that [`Trust::lend`](crate::Trust::lend) makes.
pub(crate) struct ApplyLent<T, V, I>(PhantomData<fn(T, V, I)>);

impl<T, V, I> Delegated for ApplyLent<T, V, I>
where
    T: 'static,
    V: Lend,
    I: InvokeLent<T, V>,
{
    #[cfg_attr(optimised, inline(always))]
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
        let property = unsafe { &mut *property.cast::<T>() };
        loop {
            if serve_group::<T, V, I>(property, batch, request) == 0 {
                serve_one::<T, V, I>(property, batch, request);
            }
            if request.head.is_bulk() || !batch.is_next(request) || batch.outsized.is_some() {
                return;
            }
        }
    }

    fn describe() -> Description {
        Description::of::<T, I>(I::name())
    }
}

/// Serves a request by itself.
#[cfg_attr(optimised, inline(always))]
fn serve_one<T, V, I>(property: &mut T, batch: &mut Batch<'_>, request: Received)
where
    T: 'static,
    V: Lend,
    I: InvokeLent<T, V>,
{
    let result = batch.payload(request, move |bytes| {
        let Some((capture, arguments)) = bytes.split_at_checked(size_of::<I>()) else {
            return Err(cut_short::<V>(CUT_CAPTURE));
        };
        let arguments = if request.head.is_bulk() {
            codec::decode::<V::Lent<'_>>(arguments)
        } else {
            codec::decode_front::<V::Lent<'_>>(arguments)
        };
        let arguments =
            arguments.map_err(|error| Refusal::Arguments(BadValue::undecodable::<V>(error)))?;
        // SAFETY: as in `take_captured`: the bytes of a closure of this type, which its sender has
        // forgotten.
        let invoke = unsafe { rebuild::<I>(capture) };
        Ok(invoke.invoke_lent(property, arguments))
    });
    match result {
        Ok(result) => I::reply(result, batch, request),
        Err(refusal) => batch.refuse_by(&refusal),
    }
    batch.pass(request);
}

/// Looks at this request and those after it that are the same but for their arguments, and serves
/// them; returns how many. None if there is no hook, or this request must be served by itself, where
/// what is wrong with it is found again.
#[cfg_attr(optimised, inline(always))]
fn serve_group<T, V, I>(property: &mut T, batch: &mut Batch<'_>, request: Received) -> usize
where
    T: 'static,
    V: Lend,
    I: InvokeLent<T, V>,
{
    // A closure with bytes is made once.
    if const { !I::LOOKS_AHEAD || size_of::<I>() > 0 } || request.head.is_bulk() {
        return 0;
    }
    let count = batch.count_equal(request, GROUP);
    if count < 2 {
        return 0;
    }
    let stride = (1 + request.words) * WORD;
    let (buffer, first) = (batch.buffer, (batch.at + 1) * WORD);
    copied_out(buffer, first, count * stride - WORD, |bytes| {
        let mut group = [const { None }; GROUP];
        // Without the head of the next one.
        let payloads = bytes.chunks(stride).map(|chunk| &chunk[..request.words * WORD]);
        look_at::<T, V, I>(property, payloads.take(count), &mut group);
        let mut served = 0;
        for arguments in group.into_iter().map_while(|arguments| arguments) {
            // SAFETY: a closure without bytes, see `rebuild`; it is that of this request.
            let invoke = unsafe { rebuild::<I>(&[]) };
            let result = invoke.invoke_lent(property, arguments);
            I::reply(result, batch, request);
            batch.pass(request);
            served += 1;
            if batch.outsized.is_some() {
                break;
            }
        }
        served
    })
}

/// Decodes the arguments of some requests, up to the first that cannot be decoded or holds a trust, and
/// passes them to the hook. If user code panics, all of them are dropped.
#[cfg_attr(optimised, inline(always))]
fn look_at<'a, T, V, I>(
    property: &T,
    requests: impl Iterator<Item = &'a [u8]>,
    group: &mut [Option<V::Lent<'a>>; GROUP],
) where
    V: Lend,
    I: InvokeLent<T, V>,
{
    let taken = &mut *group;
    let looked = catch_unwind(AssertUnwindSafe(|| {
        for (bytes, arguments) in requests.zip(&mut *taken) {
            *arguments = codec::decode_repeatable::<V::Lent<'a>>(bytes);
            if arguments.is_none() {
                break;
            }
        }
        // SAFETY: a closure without bytes, see `rebuild`. It is only looked at: those that run are made
        // by themselves.
        let invoke = ManuallyDrop::new(unsafe { rebuild::<I>(&[]) });
        for step in [Step::First, Step::Second] {
            for arguments in taken.iter().map_while(Option::as_ref) {
                invoke.look_ahead(property, arguments, step);
            }
        }
    }));
    if let Err(panic) = looked {
        drop_payload(panic);
        group.iter_mut().for_each(|arguments| *arguments = None);
    }
}

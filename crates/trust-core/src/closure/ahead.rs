//! Looking ahead: a hook that sees the arguments of the requests of a run before any of them is served,
//! so that the memory which they will touch is on its way.
//!
//! A request on a large property waits for memory: for a bucket, then for an entry, then for its value.
//! The trustee that serves requests one after the other waits for each of these. It has a run of equal
//! requests before it, though, so it takes the arguments of the next [`GROUP`] out of the slot, calls
//! the hook for each of them, twice, and only then serves them:
//!
//! ```text
//!   take 1 .. 8 | first step of 1 .. 8 | second step of 1 .. 8 | serve 1 .. 8
//! ```
//!
//! Only these calls pay for it: whether a call has a hook is a constant of its kind.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use primitive::drop_payload;
use primitive::sync::Ordering;
use serde::de::DeserializeOwned;

use crate::closure::batch::{Batch, Place, Received};
use crate::closure::capture::rebuild;
use crate::closure::invoke::{Invoke, InvokeRef, Step};
use crate::codec;
use crate::error::Refusal;

/// Requests that are looked at together.
pub(super) const GROUP: usize = 8;

/// A closure with a hook.
pub(crate) struct Ahead<H, I> {
    pub(super) hook: H,
    pub(super) invoke: I,
}

impl<H, I> Ahead<H, I> {
    #[inline(always)]
    pub(crate) fn new(hook: H, invoke: I) -> Self {
        Ahead { hook, invoke }
    }
}

impl<T, V, H: Fn(&T, &V, Step), I: Invoke<T, V>> Invoke<T, V> for Ahead<H, I> {
    type Output = I::Output;
    const LOOKS_AHEAD: bool = true;
    #[inline(always)]
    fn invoke(self, property: &mut T, arguments: V) -> I::Output {
        self.invoke.invoke(property, arguments)
    }
    #[inline(always)]
    fn look_ahead(&self, property: &T, arguments: &V, step: Step) {
        (self.hook)(property, arguments, step);
    }
    fn name() -> &'static str {
        I::name()
    }
}

impl<T, V, H: Fn(&T, &V, Step), I: InvokeRef<T, V>> InvokeRef<T, V> for Ahead<H, I> {
    type Output = I::Output;
    const LOOKS_AHEAD: bool = true;
    #[inline(always)]
    fn invoke_ref(self, property: &mut T, arguments: V) -> Option<&I::Output> {
        self.invoke.invoke_ref(property, arguments)
    }
    #[inline(always)]
    fn look_ahead(&self, property: &T, arguments: &V, step: Step) {
        (self.hook)(property, arguments, step);
    }
    fn name() -> &'static str {
        I::name()
    }
}

/// Runs `serve` with closure and arguments of a request, and of those after it that are the same but
/// for their arguments, after `look` has seen the arguments of several. `take` takes
/// those of one that is served by itself; `serve` writes the reply.
#[inline(always)]
pub(crate) fn each_of_run<T, V, I>(
    batch: &mut Batch<'_>,
    request: Received,
    property: &mut T,
    take: impl Fn(&mut Batch<'_>, Received) -> Result<(I, V), Refusal>,
    look: impl Fn(&I, &T, &V, Step),
    mut serve: impl FnMut(&mut Batch<'_>, &mut T, I, V),
) where
    V: DeserializeOwned + 'static,
{
    loop {
        let mut group = [const { None }; GROUP];
        // A closure with bytes is made once, and a lone request has nothing to wait for together with.
        if size_of::<I>() == 0 && !request.head.is_bulk() {
            look_at_next(batch, request, property, &look, &mut group);
        }
        if group[0].is_none() {
            match take(batch, request) {
                Ok((invoke, arguments)) => serve(batch, property, invoke, arguments),
                Err(refusal) => batch.refuse_by(&refusal),
            }
            batch.pass(request);
        }
        for arguments in group.iter_mut().map_while(Option::take) {
            // SAFETY: a closure without bytes, see `rebuild`; it is that of this request.
            let invoke = unsafe { rebuild::<I>(&[]) };
            serve(batch, property, invoke, arguments);
            batch.pass(request);
            if batch.outsized.is_some() {
                return;
            }
        }
        if request.head.is_bulk() || !batch.is_next(request) || batch.outsized.is_some() {
            return;
        }
    }
}

/// Takes the arguments of the next requests like this one, and has `look` see them. If no such request
/// follows, or user code panics, `group` stays empty: each request is then served by itself, where what
/// is wrong with it is found again.
#[inline(always)]
fn look_at_next<T, V, I>(
    batch: &mut Batch<'_>,
    request: Received,
    property: &T,
    look: &impl Fn(&I, &T, &V, Step),
    group: &mut [Option<V>; GROUP],
) where
    V: DeserializeOwned + 'static,
{
    let taken = &mut *group;
    let at = batch.at;
    let taken = catch_unwind(AssertUnwindSafe(|| {
        let place = Place { batch, at };
        let count = take_next(place.batch, request, taken);
        if count > 1 {
            // SAFETY: a closure without bytes, see `rebuild`. It is only looked at: those that run are
            // made by themselves.
            let invoke = ManuallyDrop::new(unsafe { rebuild::<I>(&[]) });
            for step in [Step::First, Step::Second] {
                for arguments in taken.iter().map_while(Option::as_ref) {
                    look(&invoke, property, arguments, step);
                }
            }
        }
    }));
    if let Err(panic) = taken {
        drop_payload(panic);
        group.iter_mut().for_each(|arguments| *arguments = None);
    }
}

/// Takes the arguments of the next requests like this one; returns how many.
#[inline(always)]
fn take_next<V>(batch: &mut Batch<'_>, request: Received, group: &mut [Option<V>; GROUP]) -> usize
where
    V: DeserializeOwned + 'static,
{
    for (count, arguments) in group.iter_mut().enumerate() {
        if count > 0 && !batch.is_next(request) {
            return count;
        }
        *arguments = match codec::plain_words::<V>() {
            Some(words) if request.words < words => None,
            Some(_) => codec::from_plain(|| batch.slot.load(batch.at + 1, Ordering::Relaxed)),
            None => batch.payload(request, |bytes| codec::decode_repeatable(bytes)),
        };
        if arguments.is_none() {
            return count;
        }
        batch.pass(request);
    }
    GROUP
}

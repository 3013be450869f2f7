//! A launched closure at its trustee.
//!
//! It may wait, so it runs in a fiber of its own, with its latch held. The fiber is started at once,
//! amid the requests that are served:
//!
//! ```text
//!   the closure ends without a wait     its result takes the place of its request
//!   it waits                            the request's reply is that the result comes later; that
//!                                       follows as a request in the other direction
//! ```
//!
//! So a launch that need not wait costs one request, like any other call. Its token is all that it says
//! of itself, one word, unless other launches wait for it.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fiber::{Builder, NotStarted};

use crate::api::latch::Latch;
use crate::api::latch_report::{HeldByCaller, place_of};
use crate::closure::batch::{Batch, Received};
use crate::closure::call::take;
use crate::closure::registry::{Delegated, Description};
use crate::codec::{self, Portable};
use crate::error::{BadValue, CodecError, PanicReport, Refusal};
use crate::node::awaited::ReplyTo;
use crate::node::callers::{Call, Callers};
use crate::node::chain::Running;
use crate::node::kind::{Kind, reply_words};
use crate::node::{current, on_node};

/// A closure that is launched on a `Latch<T>`, with arguments of type `V`: how it holds the latch.
pub(super) trait Launch<T, V>: Sized + 'static {
    type Output: Portable;

    /// Waits for the latch of this `property`, tells `running`, and runs the closure.
    fn run(
        self,
        latch: &Latch<T>,
        property: u32,
        arguments: V,
        running: &Running,
    ) -> Result<Self::Output, HeldByCaller>;

    /// The name of the closure.
    fn name() -> &'static str;
}

/// Runs a launched closure in the current fiber: its result, or why it did not run.
#[cfg_attr(optimised, inline(always))]
pub(super) fn run<T, V, L>(
    launch: L,
    latch: &Latch<T>,
    property: u32,
    call: Call,
    arguments: V,
) -> Result<L::Output, String>
where
    L: Launch<T, V>,
{
    let reply_to = call.reply_to;
    let running = call.run();
    launch.run(latch, property, arguments, &running).map_err(|held| refused(reply_to, &held))
}

#[cold]
#[inline(never)]
fn refused(call: ReplyTo, held: &HeldByCaller) -> String {
    format!("launched at {}, but {}", place_of(call), held.reason())
}

/// Where the result of a launch goes, as its request says it: a token (`u64`), or a [`Call`] if other
/// launches wait for this one.
pub(super) trait ReplyAddress: Portable {
    /// The token that the result is for.
    fn token(&self) -> u64;

    /// The call, at its trustee.
    fn call(self) -> Call;
}

impl ReplyAddress for u64 {
    #[inline(always)]
    fn token(&self) -> u64 {
        *self
    }

    #[inline(always)]
    fn call(self) -> Call {
        let node = current(&self).expect("requests are served on a node");
        // `is_timed` says when to forget callers; this call has none.
        let (reply_to, callers) = (ReplyTo::client_of(node, self), Callers::default());
        Call { reply_to, callers, is_timed: false }
    }
}

impl ReplyAddress for Call {
    fn token(&self) -> u64 {
        self.reply_to.token()
    }

    fn call(self) -> Call {
        self
    }
}

/// The kind of call that `launch` and its relatives make. The arguments are its reply address (`A` is `u64`,
/// a token, or [`Call`]) and those of the closure, unless these are [nothing](takes_nothing).
pub(super) struct ServeLaunch<T, A, V, L>(PhantomData<fn(T, A, V, L)>);

/// Whether closures with arguments of this type take none.
#[cfg_attr(optimised, inline(always))]
pub(super) fn takes_nothing<V: 'static>() -> bool {
    codec::plain_words::<V>() == Some(0)
}

/// As [`takes_nothing`], as far as it can be told in a `const` block ([`codec::may_be_plain`]).
pub(super) const fn may_take_nothing<V>() -> bool {
    size_of::<V>() == 0
}

impl<T, A, V, L> Delegated for ServeLaunch<T, A, V, L>
where
    T: 'static,
    A: ReplyAddress,
    V: Portable,
    L: Launch<T, V>,
{
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        // SAFETY: the caller's promise is the same.
        let latch = unsafe { latch_of::<T>(property) };
        let taken = if const { may_take_nothing::<V>() } && takes_nothing::<V>() {
            take::<A, L>(batch, request).map(|(launch, address)| {
                (launch, (address, codec::from_plain(|| 0).expect("a plain type")))
            })
        } else {
            take::<(A, V), L>(batch, request)
        };
        match taken {
            Ok((launch, (address, arguments))) => {
                start(launch, latch, (address.call(), arguments), batch, request);
            }
            Err(refusal) => batch.refuse_by(&refusal),
        }
        batch.pass(request);
    }

    fn describe() -> Description {
        Description::of::<Latch<T>, L>(L::name())
    }
}

/// The latch of a launch.
///
/// # Safety
/// As [`Delegated::run`], of a `Latch<T>`.
#[inline(always)]
unsafe fn latch_of<T: 'static>(property: *mut u8) -> Latch<T> {
    // SAFETY: the caller promises a live property of type `Latch<T>` to which nothing else refers. The
    // reference ends here: the fiber may use the property, or drop the last trust.
    unsafe { &*property.cast::<Latch<T>>() }.share()
}

/// Why a launched closure has no result. It is in a box, so that a result is not moved with the room
/// of an error around it.
enum Failure {
    Refused(String),
    Panicked(PanicReport),
}

/// Starts the fiber of a launched closure, and replies.
#[cfg_attr(optimised, inline(always))]
fn start<T, V, L>(
    launch: L,
    latch: Latch<T>,
    (call, arguments): (Call, V),
    batch: &mut Batch<'_>,
    request: Received,
) where
    T: 'static,
    V: Portable,
    L: Launch<T, V>,
{
    let (reply_to, property) = (call.reply_to, request.head.property());
    let body = move || {
        let body = || run(launch, &latch, property, call, arguments);
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(reason)) => Err(Box::new(Failure::Refused(reason))),
            Err(panic) => Err(Box::new(Failure::Panicked(PanicReport::taken(panic)))),
        }
    };
    let later = move |result: Result<L::Output, Box<Failure>>| {
        let result = match result.map_err(|failure| *failure) {
            Ok(value) => Ok(Ok(value)),
            Err(Failure::Refused(reason)) => Ok(Err(reason)),
            Err(Failure::Panicked(report)) => Err(report),
        };
        on_node(|node| node.reply_later(reply_to, result));
    };
    let builder = Builder::new().code(L::name());
    let node = current(&reply_to).expect("requests are served on a node");
    match node.context().leave_for(|| builder.start_now(body, later)) {
        Ok(Some(Ok(value))) => reply(batch, request, value),
        Ok(Some(Err(failure))) => fail(batch, *failure),
        Ok(None) => batch.reply_later(),
        Err(NotStarted { error, closure }) => {
            // The arguments' destructors are delegated code. If one panics, there is no reply yet.
            drop(closure);
            batch.refuse(&format!("cannot start a fiber for the closure: {error}"));
        }
    }
}

#[cold]
#[inline(never)]
fn fail(batch: &mut Batch<'_>, failure: Failure) {
    match failure {
        Failure::Refused(reason) => batch.refuse(&reason),
        Failure::Panicked(report) => batch.panicked(&report),
    }
}

/// Replies with the result. A panic of its own code while it is encoded is not one of the closure.
#[inline]
fn reply<U: Portable>(batch: &mut Batch<'_>, request: Received, value: U) {
    let encode = AssertUnwindSafe(|| batch.reply(request, value));
    if let Err(panic) = catch_unwind(encode) {
        let error = BadValue::unencodable::<U>(CodecError::of_panic(panic));
        batch.refuse_by(&Refusal::Result(error));
    }
}

impl<T, A, V, L> Kind for ServeLaunch<T, A, V, L>
where
    T: 'static,
    A: ReplyAddress,
    V: Portable,
    L: Launch<T, V>,
{
    #[inline(always)]
    fn reply_words() -> usize {
        reply_words::<L::Output>()
    }
}

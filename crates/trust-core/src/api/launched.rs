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
//! So a launch that need not wait costs one request, like any other call.

use std::any::TypeId;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fiber::{Builder, NotStarted};

use crate::api::latch::Latch;
use crate::api::latch_report::{HeldByCaller, place_of};
use crate::closure::batch::{Batch, Received};
use crate::closure::call::take;
use crate::closure::registry::{Delegated, Description};
use crate::codec::Portable;
use crate::error::{BadValue, CodecError, PanicReport, Refusal};
use crate::node::callers::Call;
use crate::node::chain::Running;
use crate::node::on_node;
use crate::node::request::{Kind, reply_words};

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
    launch
        .run(latch, property, arguments, &running)
        .map_err(|held| format!("launched at {}, but {}", place_of(reply_to), held.reason()))
}

/// The kind of call that `launch` and its relatives make.
pub(super) struct ServeLaunch<T, V, L>(PhantomData<fn(T, V, L)>);

impl<T, V, L> Delegated for ServeLaunch<T, V, L>
where
    T: 'static,
    V: Portable,
    L: Launch<T, V>,
{
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        // SAFETY: the caller promises a live property of type `Latch<T>` to which nothing else
        // refers. The reference ends here: the fiber may use the property, or drop the last trust.
        let latch = unsafe { &*property.cast::<Latch<T>>() }.share();
        match take::<(Call, V), L>(batch, request) {
            Ok((launch, (call, arguments))) => {
                start(launch, latch, (call, arguments), batch, request);
            }
            Err(refusal) => batch.refuse_by(&refusal),
        }
        batch.pass(request);
    }

    fn describe() -> Description {
        Description {
            property: TypeId::of::<Latch<T>>(),
            property_name: std::any::type_name::<Latch<T>>(),
            closure_name: L::name(),
            has_word: false,
            serves_runs: false,
        }
    }
}

/// Starts the fiber of a launched closure, and replies.
#[inline]
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
        catch_unwind(AssertUnwindSafe(body)).map_err(PanicReport::taken)
    };
    let later = move |result| {
        on_node(|node| node.reply_later(reply_to, result));
    };
    let builder = Builder::new().code(L::name());
    let started = on_node(|node| node.context().leave_for(|| builder.start_now(body, later)));
    match started {
        Some(Ok(Some(Ok(Ok(value))))) => reply(batch, request, value),
        Some(Ok(Some(Ok(Err(reason))))) => batch.refuse(&reason),
        Some(Ok(Some(Err(report)))) => batch.panicked(&report),
        Some(Ok(None)) => batch.reply_later(),
        Some(Err(NotStarted { error, closure })) => {
            // The arguments' destructors are delegated code. If one panics, there is no reply yet.
            drop(closure);
            batch.refuse(&format!("cannot start a fiber for the closure: {error}"));
        }
        None => unreachable!("requests are served on a node"),
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

impl<T, V, L> Kind for ServeLaunch<T, V, L>
where
    T: 'static,
    V: Portable,
    L: Launch<T, V>,
{
    #[inline(always)]
    fn reply_words() -> usize {
        reply_words::<L::Output>()
    }
}

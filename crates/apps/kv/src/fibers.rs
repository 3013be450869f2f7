//! Waiting without blocking a thread of the rack: [`run_blocking`] moves blocking work to a thread
//! of its own, and `request_all` sends several requests before it waits for the first response.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread;

use fiber::{FiberId, Promise};
use gossamer::DelegateError;

/// Runs blocking `work` on a new thread. The calling fiber waits; its thread keeps serving the
/// rack.
///
/// # Panics
/// Outside a fiber, if `work` panics, and if no thread can be started.
pub fn run_blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (promise, outcome) = Promise::new();
    // If `work` panics, dropping the unsettled promise fails the join below.
    thread::spawn(move || promise.settle(Ok(work())));
    match outcome.join() {
        Ok(result) => result,
        Err(error) => panic!("blocking work failed: {error}"),
    }
}

/// The requests of [`request_all`].
struct Pending<R> {
    outstanding: Cell<usize>,
    responses: RefCell<Vec<Option<Result<R, DelegateError>>>>,
    fiber: FiberId,
}

/// Takes the response to one request of [`request_all`].
pub(crate) struct Reply<R> {
    pending: Rc<Pending<R>>,
    index: usize,
}

impl<R> Reply<R> {
    pub(crate) fn take(self, response: Result<R, DelegateError>) {
        let Pending { outstanding, responses, fiber } = &*self.pending;
        responses.borrow_mut()[self.index] = Some(response);
        outstanding.set(outstanding.get() - 1);
        if outstanding.get() == 0 {
            fiber::unpark(*fiber);
        }
    }
}

/// Sends `count` requests, then waits for all responses and returns them in the order of the
/// requests.
///
/// # Panics
/// If a request fails, as `apply` does; outside a fiber.
pub(crate) fn request_all<R: 'static>(
    count: usize,
    mut send: impl FnMut(usize, Reply<R>),
) -> Vec<R> {
    let fiber = fiber::current().expect("requests are sent by fibers");
    let responses = RefCell::new((0..count).map(|_| None).collect());
    let pending = Rc::new(Pending { outstanding: Cell::new(count), responses, fiber });
    for index in 0..count {
        send(index, Reply { pending: Rc::clone(&pending), index });
    }
    while pending.outstanding.get() > 0 {
        fiber::park();
    }
    let responses = pending.responses.take();
    let unwrap = |response: Result<R, DelegateError>| match response {
        Ok(response) => response,
        Err(error) => panic!("request to a shard failed: {error:?}"),
    };
    responses.into_iter().flatten().map(unwrap).collect()
}

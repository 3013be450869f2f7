//! What a fiber of a rack does while it waits: blocking work on a thread of its own, and several
//! requests at a time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread;

use fiber::Promise;
use gossamer::DelegateError;

/// Runs `work`, which blocks, on a thread of its own, while this fiber waits and its thread goes on
/// serving the rack.
///
/// # Panics
/// Outside a fiber; if the work panics; and when the system has no thread left.
pub fn off_rack<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (promise, outcome) = Promise::new();
    // A promise that is dropped unsettled, as when the work panics, tells its handle.
    thread::spawn(move || promise.settle(Ok(work())));
    match outcome.join() {
        Ok(result) => result,
        Err(error) => panic!("work outside the rack failed: {error}"),
    }
}

/// Where one answer of a [`gather`] goes.
pub(crate) type Answer<R> = Box<dyn FnOnce(Result<R, DelegateError>)>;

/// Sends several requests without waiting in between, then waits for all answers; they come in the
/// order of the requests.
///
/// # Panics
/// If a request fails, as `apply` does; outside a fiber.
pub(crate) fn gather<R: 'static>(count: usize, mut send: impl FnMut(usize, Answer<R>)) -> Vec<R> {
    struct Gathering<R> {
        missing: Cell<usize>,
        answers: RefCell<Vec<Option<Result<R, DelegateError>>>>,
    }
    let me = fiber::current().expect("requests are sent by fibers");
    let answers = RefCell::new((0..count).map(|_| None).collect());
    let gathering = Rc::new(Gathering { missing: Cell::new(count), answers });
    for index in 0..count {
        let gathering = Rc::clone(&gathering);
        send(
            index,
            Box::new(move |answer| {
                gathering.answers.borrow_mut()[index] = Some(answer);
                gathering.missing.set(gathering.missing.get() - 1);
                if gathering.missing.get() == 0 {
                    fiber::unpark(me);
                }
            }),
        );
    }
    while gathering.missing.get() > 0 {
        fiber::park();
    }
    let answers = gathering.answers.take();
    let unwrap = |answer: Result<R, DelegateError>| match answer {
        Ok(answer) => answer,
        Err(error) => panic!("a shard did not answer: {error}"),
    };
    answers.into_iter().flatten().map(unwrap).collect()
}

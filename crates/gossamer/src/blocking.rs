//! Blocking work and futures beside fibers: [`spawn_blocking`] and [`block_on`].
//!
//! A fiber that blocks its thread stops all that the thread serves. So blocking work goes to plain
//! threads of the process, while the fiber that needs its result is parked; and a future is polled by
//! the fiber that waits for it, which its waker unparks. Neither needs an async runtime.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::pin;
use std::time::Duration;
use std::{io, thread};

use fiber::{JoinError, JoinHandle, Promise, panic_place_of};
use parking_lot::{Condvar, Mutex};
use primitive::drop_payload;

/// Threads for blocking work, at most. They wait for the system rather than compute, so there may be
/// many more than cores; further work waits for one of them.
const MOST_THREADS: usize = 256;
/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// Blocking work; with the error if there is no thread for it.
type Work = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The threads of this process for blocking work.
struct Pool {
    state: Mutex<State>,
    has_work: Condvar,
}

struct State {
    queue: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

static POOL: Pool = Pool {
    state: Mutex::new(State { queue: VecDeque::new(), threads: 0, idle: 0 }),
    has_work: Condvar::new(),
};

impl Pool {
    fn submit(&'static self, work: Work) {
        let mut state = self.state.lock();
        state.queue.push_back(work);
        if state.idle >= state.queue.len() || state.threads == MOST_THREADS {
            self.has_work.notify_one();
            return;
        }
        let thread = thread::Builder::new().name("gossamer-blocking".to_owned());
        match thread.spawn(|| self.serve()) {
            Ok(_) => state.threads += 1,
            // The others will come to it, if there are any.
            Err(_) if state.threads > 0 => {}
            Err(error) => {
                let work = state.queue.pop_back();
                drop(state);
                if let Some(work) = work {
                    work(Err(error));
                }
            }
        }
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                drop(state);
                // Panics of `work` are in its result already. These are of a waker, or of the destructor
                // of a result that is not joined: nothing waits for them, and the thread goes on.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(Ok(())))) {
                    drop_payload(panic);
                }
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.has_work.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Runs `work`, which may block, on a thread outside the rack: files, sockets, a long computation, a
/// library that locks. Its [`JoinHandle`] parks the fiber that joins it, and is a future.
///
/// The process has at most 256 such threads, which wait ten seconds for more work; further work waits
/// for one of them. The end of the rack does not wait for work that is under way.
///
/// ```
/// use std::time::Duration;
///
/// # gossamer::Rack::new().threads(1).run(|| {
/// let slow = gossamer::spawn_blocking(|| {
///     std::thread::sleep(Duration::from_millis(10)); // blocks no thread of the rack
///     6 * 7
/// });
/// assert_eq!(slow.join().unwrap(), 42); // other fibers run meanwhile
/// # }).unwrap();
/// ```
///
/// In `work`, trusts can be used only by `apply_async` (with the feature `tokio`); a
/// [`Handle`](crate::Handle) starts fibers.
pub fn spawn_blocking<F, U>(work: F) -> JoinHandle<U>
where
    F: FnOnce() -> U + Send + 'static,
    U: Send + 'static,
{
    let (promise, handle) = Promise::new();
    POOL.submit(Box::new(move |started| {
        let run = || match started {
            Ok(()) => work(),
            Err(error) => panic!("cannot start a thread for blocking work: {error}"),
        };
        let outcome = catch_unwind(AssertUnwindSafe(run));
        promise.settle(outcome.map_err(|payload| {
            let place = panic_place_of(&*payload);
            JoinError::Panicked { fiber: "blocking work".to_owned(), payload, place }
        }));
    }));
    handle
}

/// Waits for a future: parks the fiber, not its thread.
///
/// The future is polled on this thread, outside any async runtime. One that needs a runtime (timers and
/// sockets of tokio) is spawned there, and its handle is waited for:
/// `block_on(runtime.spawn(future))`, where `runtime` is a `tokio::runtime::Handle`.
///
/// ```
/// # gossamer::Rack::new().threads(2).run(|| {
/// let fiber = gossamer::spawn(|| 6 * 7);
/// let blocking = gossamer::spawn_blocking(|| 8);
/// let sum = gossamer::block_on(async { fiber.await.unwrap() + blocking.await.unwrap() });
/// assert_eq!(sum, 50);
/// # }).unwrap();
/// ```
///
/// # Panics
/// In delegated context, and outside a fiber; in a destructor of a fiber that is unwound because the
/// rack has ended, if the future is not ready (which ends the process: do not wait there). If the future
/// panics.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let place = Location::caller();
    // Not in a closure, whose panic would name this line instead of the caller's.
    match fiber::drive_until("`block_on`", pin!(future), None, place) {
        Some(output) => output,
        None => panic!("`block_on` at {place} would wait in a destructor while the rack ends"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_destructor_of_a_result_that_panics_costs_no_thread() {
        /// Panics when it is dropped, in silence.
        struct Falls;
        impl Drop for Falls {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(()));
            }
        }
        for _ in 0..=MOST_THREADS {
            let (detached, is_detached) = mpsc::channel();
            drop(spawn_blocking(move || {
                is_detached.recv().unwrap();
                Falls
            }));
            detached.send(()).unwrap();
        }
        let joined = spawn_blocking(|| 7).join_timeout(Duration::from_secs(60));
        assert_eq!(joined.expect("a thread for it"), 7);
    }
}

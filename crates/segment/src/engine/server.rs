//! [`Server`]: a thread that serves the segments of a process without runtime threads.
//!
//! It executes the operations of threads that are not attached, each in a fiber, as a runtime thread
//! does: an operation that waits, such as an open with a timeout, does not hold up others.

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use fiber::{Config, Scheduler};
use progress::Progress;
use transport_api::Parker;

use crate::engine::attach::{Attached, attached, open_lanes};
use crate::engine::engine::LONGEST_SLEEP;
use crate::error::SegmentError;
use crate::shared::{Shared, Spawn};

/// Fibers resumed between two polls, at most.
const FIBERS_PER_POLL: usize = 64;

/// A thread that serves the segments of a process without runtime threads: it polls, and executes the
/// operations of threads that are not attached.
///
/// Dropping it ends the segments of this process for threads that are not attached, for good: their
/// operations return [`SegmentError::RackEnded`], and [`serve`](crate::Segments::serve) cannot be
/// called again.
pub struct Server {
    shared: Arc<Shared>,
    thread: u32,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread, which attaches itself as `number`.
    pub(crate) fn start(shared: &Arc<Shared>, number: u32) -> Result<Server, SegmentError> {
        if shared.spawn.get().is_some() {
            return Err(SegmentError::Served);
        }
        let (started, is_up) = mpsc::channel();
        let there = shared.clone();
        let serve = move || match Serving::new(&there, number) {
            Err(error) => drop(started.send(Err(error))),
            Ok(serving) => {
                // Only now: a thread that could not be attached must get no job.
                let is_first = there.spawn.set(serving.spawn()).is_ok();
                let _ = started.send(if is_first { Ok(()) } else { Err(SegmentError::Served) });
                serving.run(&there, number, is_first);
            }
        };
        let serving = thread::Builder::new()
            .name(format!("segments-{number}"))
            .spawn(serve)
            .map_err(|error| SegmentError::io("cannot start a thread", error))?;
        is_up.recv().unwrap_or(Err(SegmentError::RackEnded))?;
        Ok(Server { shared: shared.clone(), thread: number, serving: Some(serving) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.end();
        self.shared.transport.unpark(self.thread);
        // A callback on that very thread may own and drop this: it must not join itself.
        let own = thread::current().id();
        if let Some(serving) = self.serving.take().filter(|serving| serving.thread().id() != own) {
            // What it carries out may wait for the polls of this thread.
            while let Some(engine) = attached(&self.shared).filter(|_| !serving.is_finished()) {
                engine.poll();
                thread::yield_now();
            }
            // A panic of it was printed.
            let _ = serving.join();
        }
    }
}

/// The state of the serving thread.
struct Serving {
    scheduler: Scheduler,
    progress: Rc<Progress>,
    parker: Box<dyn Parker>,
    attached: Attached,
}

impl Serving {
    /// Attaches the calling thread.
    fn new(shared: &Arc<Shared>, number: u32) -> Result<Serving, SegmentError> {
        let transport = shared.transport.clone();
        let config =
            Config { wake: Arc::new(move || transport.unpark(number)), ..Config::default() };
        let scheduler = Scheduler::new(config)
            .map_err(|error| SegmentError::io("cannot run fibers on a thread", error))?;
        let (progress, parker) = open_lanes(shared, number)?;
        let attached = Attached::new(shared, number, progress.clone(), None);
        Ok(Serving { scheduler, progress, parker, attached })
    }

    /// Begins a job on this thread, from any thread, in the order of the calls.
    fn spawn(&self) -> Spawn {
        let remote = self.scheduler.remote();
        // If the thread has ended, this drops the job, which its caller notices.
        Box::new(move |job| drop(remote.spawn(job)))
    }

    /// Serves until the rack ends, if `is_first`; then ends what is under way.
    fn run(self, shared: &Arc<Shared>, number: u32, is_first: bool) {
        let Serving { scheduler, progress, mut parker, attached } = self;
        scheduler.enter(|| {
            while is_first && !shared.has_ended() {
                let resumed = scheduler.run(FIBERS_PER_POLL);
                let now = Instant::now();
                let deadline = scheduler.expire(now);
                // Turns of callbacks that were arranged before there was a server.
                let had_turns = shared.take_turns(number);
                if progress.poll() || resumed > 0 || had_turns {
                    continue;
                }
                let timeout = deadline.map_or(LONGEST_SLEEP, |deadline| {
                    deadline.saturating_duration_since(now).min(LONGEST_SLEEP)
                });
                parker.park(timeout, &mut || {
                    scheduler.has_ready()
                        || scheduler.drain_inbox()
                        || shared.has_ended()
                        || shared.take_turns(number)
                        || progress.poll()
                });
            }
            // Jobs that have not begun are dropped from here on, and operations under way fail.
            drop(attached);
            progress.close();
            let mut left = FIBERS_PER_POLL;
            while left > 0 {
                match scheduler.run(left) {
                    0 => break,
                    resumed => left -= resumed,
                }
            }
        });
        // Unwinds the fibers that are left: those that sleep.
    }
}

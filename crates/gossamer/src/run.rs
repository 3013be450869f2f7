//! [`Rack::run`]: how a program becomes a rack, runs, and ends.
//!
//! With one host, `run` starts the runtime threads in this process. With more, the program starts
//! itself again for each further host; these processes call `run` too, serve there until the rack
//! ends, and exit. In a job, daemons start the processes, and the same holds. So the code before
//! `run` runs in every process, and the closure given to it runs once, on host 0 (thesis 3.2.2,
//! `gsm_main`).

use std::any::type_name;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{panic, thread};

use fiber::{Builder, JoinError, JoinHandle};
use parking_lot::{Mutex, RwLock};
use transport_api::{ThreadId, Transport};
use trust_core::{Registered, Wiring};

use crate::children::Children;
#[cfg(all(feature = "jam", feature = "tcp"))]
use crate::packages::Packages;
use crate::processors::Processors;
#[cfg(feature = "tcp")]
use crate::reporter::Reporter;
use crate::shared::{Shared, thread_name};
use crate::stalls::{self, StallReporter};
use crate::start::{self, Joined};
use crate::topology::Topology;
use crate::worker::Worker;
use crate::{Rack, RackError, StartError, cause, end};

/// How long to wait for another host to share its slots.
const WIRING_TIMEOUT: Duration = Duration::from_secs(20);

impl Rack {
    /// Runs the rack: `main` runs once, in a fiber of thread 0 of host 0, and when it returns the
    /// rack ends. Fibers that are still waiting then are unwound.
    ///
    /// - In a process that a daemon has started (`gossamer run`), the rack is that of the job: over
    ///   TCP and TLS between machines and shared memory within one, or over RDMA everywhere if the
    ///   program was built for that.
    /// - In a task of a Slurm step (`srun`), it is that of the step, in the same way.
    /// - Elsewhere this call starts the processes of the other hosts.
    ///
    /// In the processes of other hosts this call does not return: they exit when the rack has
    /// ended.
    ///
    /// # When a program hangs
    /// Start it with `GOSSAMER_STALL=10s` in its environment. Each process of the rack then prints the
    /// fibers that have waited longer than that, to its standard error: for what, since when, where the
    /// wait began, and for a latch which fiber holds it, since which `lock` or `launch`. It also prints
    /// threads that do not answer because a fiber or a closure keeps them busy. A process that gets a
    /// SIGUSR2 prints all waits. This wakes waiting fibers now and then; without the variable it costs
    /// nothing, and SIGUSR2 does what it does by default: it ends the process.
    ///
    /// # Panic hooks
    /// Each process of the rack sets a panic hook when it starts, once, so that errors have the
    /// [place](crate::PanicReport::place) of a caught panic. It calls the hook that was set before. Set your
    /// own before this call; one that is set later must call the hook that it replaces:
    /// [`PanicReport`](crate::PanicReport) shows how. One that another thread sets while the rack starts
    /// may be lost.
    ///
    /// # Errors
    /// [`RackError`], if the rack did not start or ended with a failure.
    ///
    /// # Panics
    /// If `main` panics, with its panic.
    pub fn run<M, R>(self, main: M) -> Result<R, RackError>
    where
        M: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (main, outcome) = Main::new(main);
        self.start(main)?;
        Ok(outcome.or_unwind().expect("host 0 runs main"))
    }

    /// Joins the other hosts and serves; does not return on hosts other than 0.
    fn start(mut self, main: Main) -> Result<(), RackError> {
        if !trust_core::is_one_image() {
            return Err(RackError::TwoImages);
        }
        self.set_jam_policy();
        let mut children = Children::default();
        let joined = start::assemble(&mut self, &mut children)?;
        if joined.transport.local().0 > 0 {
            let code = match self.serve(joined, None) {
                Ok(()) => 0,
                Err(error) => {
                    // In one piece: the processes of a rack often share their standard error.
                    let line = format!("gossamer: {error:?}\n");
                    let _ = std::io::stderr().write_all(line.as_bytes());
                    1
                }
            };
            std::process::exit(code);
        }
        let served = self.serve(joined, Some(main));
        let served = served.map_err(|error| cause::of_failure(error, &mut children.0));
        children.shut_down(served.is_ok());
        served
    }

    /// As [`run`](Self::run), on a transport of the caller: for transports that this crate does not
    /// know. The transport sets hosts and threads, not the settings. `main` runs on
    /// host 0 only; on the others the call returns `None` when the rack has ended.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on<M, R>(
        self,
        transport: Arc<dyn Transport>,
        main: M,
    ) -> Result<Option<R>, RackError>
    where
        M: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.set_jam_policy();
        let (main, outcome) = Main::new(main);
        let main = (transport.local().0 == 0).then_some(main);
        self.serve(transport.into(), main)?;
        Ok(outcome.or_unwind())
    }

    /// Runs this host's threads until the rack ends.
    pub(crate) fn serve(&self, joined: Joined, main: Option<Main>) -> Result<(), RackError> {
        let transport = joined.transport;
        // Once more, for `run_on`: the caller's transport may have other threads than the settings.
        self.check(transport.hosts(), transport.threads())?;
        // Before a thread of this process looks at anything that has arrived.
        #[cfg(feature = "jam")]
        if !transport.is_authenticated() {
            jam::receiver().set_unauthenticated();
        }
        let stall_limit = stalls::limit()?;
        let topology = joined.topology.unwrap_or_else(|| Topology::local(&*transport));
        let shared = Arc::new(Shared::new(
            transport.clone(),
            topology,
            self.fibers.clone(),
            self.dedicated,
            self.sleep_after,
            self.on_peer_loss,
            self.placement,
        ));
        let registered = {
            let shared = Arc::downgrade(&shared);
            Registered::new(Arc::new(move |job| {
                let shared = shared.upgrade();
                if let Some(remotes) = shared.as_ref().and_then(|shared| shared.remotes.get()) {
                    drop(remotes[0].spawn(move || trust_core::run_job(job)));
                }
            }))
        };
        shared.segments.set_spawn({
            let shared = Arc::downgrade(&shared);
            Box::new(move |job| {
                if let Some(shared) = shared.upgrade() {
                    shared.spawn_segment_job(job);
                }
            })
        });
        // A host that fails because it has lost another says goodbye: it is not the cause.
        let wiring = Wiring::connect(transport.clone(), registered.number(), WIRING_TIMEOUT)
            .map_err(|error| cause::of_wiring(&*transport, error))
            .inspect_err(|_| transport.leave())?;
        #[cfg(feature = "tcp")]
        let _reporter = joined
            .reports
            .map(|socket| Reporter::start(shared.clone(), socket))
            .transpose()
            .map_err(|error| RackError::Start(error.into()))?;
        #[cfg(all(feature = "jam", feature = "tcp"))]
        let _packages = joined
            .packages
            .map(Packages::start)
            .transpose()
            .map_err(|error| RackError::Start(error.into()))?;
        let _stalls = stall_limit
            .map(|limit| StallReporter::start(shared.clone(), limit))
            .transpose()
            .map_err(|error| RackError::Start(error.into()))?;
        let has_panicked = self.run_threads(&shared, &wiring, main)?;
        transport.leave();
        if let Some(error) = shared.take_failure() {
            return Err(error);
        }
        // A panic of `main` says more than a request whose failure it did not see.
        match shared.take_unobserved() {
            Some(error) if !has_panicked => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs the threads, with `main` as a fiber of the first, until the rack stops; returns whether `main`
    /// has panicked.
    fn run_threads(
        &self,
        shared: &Arc<Shared>,
        wiring: &Wiring,
        main: Option<Main>,
    ) -> Result<bool, RackError> {
        let (host, count) = (shared.transport.local(), shared.transport.threads());
        let processors = self.pin.then(Processors::allowed);
        // Released once all threads are up, or one of them has failed to start.
        let start_barrier = RwLock::new(());
        thread::scope(|scope| {
            let held = start_barrier.write();
            let (up, ups) = mpsc::channel();
            let spawn = |number| {
                let (start_barrier, up, processors) = (&start_barrier, up.clone(), &processors);
                let run = move || {
                    let _guard = StopIfPanicking(shared);
                    if let Some(processors) = processors {
                        let before = ThreadId { host, thread: 0 }.number(count);
                        processors.pin(self.neighbours.unwrap_or(before) + number);
                    }
                    let worker = Worker::new(shared.clone(), wiring, number);
                    if let Ok(worker) = &worker {
                        // The receiver is closed if another thread could not be started.
                        let _ = up.send((number, worker.remote()));
                    }
                    drop(up);
                    drop(start_barrier.read());
                    worker.map(|worker| worker.run())
                };
                let thread =
                    thread::Builder::new().name(thread_name(ThreadId { host, thread: number }));
                let thread = match self.worker_stack_bytes {
                    Some(bytes) => thread.stack_size(bytes),
                    None => thread,
                };
                thread.spawn_scoped(scope, run)
            };
            let threads: Vec<_> =
                (0..count).map(spawn).collect::<Result<_, _>>().map_err(|error| {
                    shared.stop();
                    RackError::Start(StartError::Thread(error))
                })?;
            drop(up);
            let mut all: Vec<_> = ups.iter().collect();
            all.sort_unstable_by_key(|(number, _)| *number);
            if all.len() == count as usize {
                let all = all.into_iter().map(|(_, remote)| remote).collect();
                drop(shared.remotes.set(all));
            } else {
                shared.stop();
            }
            let has_panicked = Arc::new(AtomicBool::new(false));
            let main = main.filter(|_| !shared.is_stopping()).map(|main| {
                let (inside, check_leaks) = (shared.clone(), self.check_leaks);
                let has_panicked = has_panicked.clone();
                shared.remote(0).spawn_with(Builder::new().code(main.code), move || {
                    let panicked = (main.run)();
                    has_panicked.store(panicked, Ordering::Relaxed);
                    end::end_rack(&inside, check_leaks && !panicked);
                })
            });
            drop(held);
            // Otherwise it ends the rack itself, or is unwound when the rack ends.
            if let Some(Err(JoinError::NotStarted(error))) = main.map(JoinHandle::join) {
                shared.fail(RackError::Start(error.into()));
            }
            for thread in threads {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(panic) => panic::resume_unwind(panic),
                }
            }
            // The fiber ran on one of the threads.
            Ok(has_panicked.load(Ordering::Relaxed))
        })
    }
}

/// The closure given to [`Rack::run`], without its type: what starts, runs and ends a rack is then compiled
/// once, and not for each closure of a program.
pub(crate) struct Main {
    /// The name of its type.
    code: &'static str,
    /// Runs it, keeps its [`Outcome`], and returns whether it has panicked.
    run: Box<dyn FnOnce() -> bool + Send>,
}

/// What `main` has returned, once it has.
pub(crate) struct Outcome<R>(Arc<Mutex<Option<thread::Result<R>>>>);

impl Main {
    pub(crate) fn new<M, R>(main: M) -> (Self, Outcome<R>)
    where
        M: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let outcome = Arc::new(Mutex::new(None));
        let place = outcome.clone();
        let run = Box::new(move || {
            let ended = panic::catch_unwind(panic::AssertUnwindSafe(main));
            let panicked = ended.is_err();
            *place.lock() = Some(ended);
            panicked
        });
        (Self { code: type_name::<M>(), run }, Outcome(outcome))
    }
}

impl<R> Outcome<R> {
    /// What `main` has returned, if it has ended; resumes its panic.
    pub(crate) fn or_unwind(self) -> Option<R> {
        let ended = self.0.lock().take();
        ended.map(|ended| ended.unwrap_or_else(|panic| panic::resume_unwind(panic)))
    }
}

/// Stops the other threads of this process when one of them panics: they would wait for it forever.
struct StopIfPanicking<'a>(&'a Shared);

impl Drop for StopIfPanicking<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

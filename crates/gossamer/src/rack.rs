//! [`Rack`]: how a program becomes a rack, runs, and ends.
//!
//! With one host, `run` starts the runtime threads in this process. With more, the program starts
//! itself again for each further host; those copies come to `run` as this one does, and there they
//! serve until the rack ends, and exit. In a job, a daemon has started the program once on each of
//! its machines, and the same holds. So what stands before `run` happens in every process, and the
//! closure given to it happens once, on host 0 (thesis 3.2.2, `gsm_main`).

#[cfg(feature = "tcp")]
use crate::statistics::Reporter;
use crate::{
    RackError, cause, end,
    processes::{Others, setting},
    processors::Processors,
    shared::Shared,
    start::{self, Joined},
    worker::{StartError, Worker},
};
use fiber::{Config, JoinError, JoinHandle};
use parking_lot::{Mutex, RwLock};
use std::{
    env, panic,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use transport_api::{ThreadId, Transport};
use trust_core::{Registered, Wiring, idle::YIELD_FOR};

/// How long to wait for another host to share its slots.
const PATIENCE: Duration = Duration::from_secs(20);

/// What happens when a host of the rack ends unexpectedly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPeerLoss {
    /// The whole rack ends, as a program ends when one of its threads crashes (thesis 3.2.1).
    #[default]
    EndRack,
    /// Requests to that host fail with [`DelegateError::PeerLost`](crate::DelegateError::PeerLost)
    /// and the rest goes on; but without host 0, where `main` runs, the rack ends.
    Return,
}

/// The settings of a rack, and the way to run it.
///
/// ```
/// use gossamer::Rack;
///
/// let sum = Rack::new().threads(2).run(|| {
///     let counter = gossamer::entrust(17u64);
///     let fibers: Vec<_> = (0..10)
///         .map(|_| {
///             let counter = counter.clone();
///             gossamer::spawn(move || counter.apply(|c| *c += 1))
///         })
///         .collect();
///     for fiber in fibers {
///         fiber.join().unwrap();
///     }
///     counter.apply(|c| *c)
/// })?;
/// assert_eq!(sum, 27);
/// # Ok::<(), gossamer::RackError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rack {
    pub(crate) hosts: u32,
    pub(crate) threads: u32,
    /// Whether somebody has said how many threads.
    has_asked: bool,
    dedicated: u32,
    sleep_after: Duration,
    fibers: Config,
    worker_stack_bytes: Option<usize>,
    on_peer_loss: OnPeerLoss,
    check_leaks: bool,
    pin: bool,
    #[cfg(feature = "tcp")]
    pub(crate) mixed_processors: bool,
    /// How many runtime threads of other hosts come before this host's on this machine, if that is
    /// not all threads of the hosts before it.
    neighbours: Option<u32>,
    #[cfg(feature = "rdma")]
    pub(crate) rdma: transport_rdma::RdmaConfig,
}

impl Default for Rack {
    fn default() -> Self {
        Self::new()
    }
}

impl Rack {
    /// A rack of one host with one thread for each core.
    pub fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        Self {
            hosts: 1,
            threads,
            has_asked: false,
            dedicated: 0,
            sleep_after: YIELD_FOR,
            fibers: Config::default(),
            worker_stack_bytes: None,
            on_peer_loss: OnPeerLoss::default(),
            check_leaks: false,
            pin: false,
            #[cfg(feature = "tcp")]
            mixed_processors: false,
            neighbours: None,
            #[cfg(feature = "rdma")]
            rdma: transport_rdma::RdmaConfig::default(),
        }
    }

    /// A rack as the command line and the environment ask for: `--hosts N` (or
    /// `GOSSAMER_HOSTS`), `--threads M` for each host (or `GOSSAMER_THREADS`). Other arguments are
    /// the program's own and are left alone; what stands behind `--` is not looked at. In a job,
    /// hosts and threads are those of the job, whatever else asks for them.
    ///
    /// # Errors
    /// [`RackError::Settings`] when a number is missing or is none.
    pub fn from_args() -> Result<Self, RackError> {
        let arguments: Vec<String> =
            env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let mut rack = Self::new();
        if let Some(hosts) = setting(&arguments, "--hosts", "GOSSAMER_HOSTS")? {
            rack = rack.hosts(hosts);
        }
        if let Some(threads) = setting(&arguments, "--threads", "GOSSAMER_THREADS")? {
            rack = rack.threads(threads);
        } else {
            rack.threads = (rack.threads / rack.hosts.max(1)).max(1);
        }
        Ok(rack)
    }

    /// How jobs use RDMA. Which device it is usually follows from the address of this host in the
    /// job; if not, it is named here or in the environment, as `GOSSAMER_RDMA_DEVICE`.
    #[cfg(feature = "rdma")]
    #[must_use]
    pub fn rdma(mut self, config: crate::RdmaConfig) -> Self {
        self.rdma = config;
        self
    }

    /// How many hosts: processes that share nothing but what they delegate. In a job it is as many
    /// as the job has.
    #[must_use]
    pub fn hosts(mut self, hosts: u32) -> Self {
        self.hosts = hosts;
        self
    }

    /// How many runtime threads each host has. In a job it is as many as the job says; under Slurm,
    /// as many as the task has processors if nothing is said, and on all hosts the same.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self.has_asked = true;
        self
    }

    /// How many threads at the end of each host only serve: the pool gives them properties and no
    /// fibers, and gives properties to no others. Zero (the default): every thread does both.
    #[must_use]
    pub fn dedicated_trustees(mut self, threads: u32) -> Self {
        self.dedicated = threads;
        self
    }

    /// How long a thread that has nothing to do goes on looking for work before it sleeps (75
    /// microseconds if not set). Whoever waits for something that takes a little longer than that
    /// pays for a sleep and a wake each time; a thread that looks for it takes its core from nobody
    /// who asks for it, but uses it up.
    ///
    /// ```
    /// use std::time::Duration;
    /// let rack = gossamer::Rack::new().sleep_after(Duration::from_millis(1));
    /// # let _ = rack;
    /// ```
    #[must_use]
    pub fn sleep_after(mut self, idle: Duration) -> Self {
        self.sleep_after = idle;
        self
    }

    /// Usable bytes of a fiber's stack (128 KiB if not set). Only touched pages take memory.
    ///
    /// Closures that other threads delegate do not run on it, but on the stack of the
    /// [runtime thread](Self::worker_stack_bytes).
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Self {
        self.fibers.stack_bytes = bytes;
        self
    }

    /// Bytes of the stack of each runtime thread: the OS threads on which the closures run that other
    /// threads delegate, their callbacks, and the code that encodes and decodes what they are given.
    /// If not set it is the standard library's default for threads: 2 MiB, or what the environment
    /// variable `RUST_MIN_STACK` says. Only touched pages take memory. Closures on a fiber's own
    /// thread run on the stack of [the fiber](Self::stack_bytes).
    ///
    /// ```
    /// let rack = gossamer::Rack::new().worker_stack_bytes(16 << 20);
    /// # let _ = rack;
    /// ```
    #[must_use]
    pub fn worker_stack_bytes(mut self, bytes: usize) -> Self {
        self.worker_stack_bytes = Some(bytes);
        self
    }

    /// Whether the hosts of a job may have processors with different features (they may not if not
    /// set, and a host that differs is refused when the rack starts). Only for programs that delegate
    /// no closure which captures the proof of a feature, as [`Delegable`](crate::Delegable) explains.
    ///
    /// ```
    /// let rack = gossamer::Rack::new().mixed_processors(true);
    /// # let _ = rack;
    /// ```
    #[cfg(feature = "tcp")]
    #[must_use]
    pub fn mixed_processors(mut self, mixed: bool) -> Self {
        self.mixed_processors = mixed;
        self
    }

    /// What happens when a host ends unexpectedly.
    #[must_use]
    pub fn on_peer_loss(mut self, what: OnPeerLoss) -> Self {
        self.on_peer_loss = what;
        self
    }

    /// Makes [`run`](Self::run) fail if properties are still alive when all work has ended: some
    /// trust was leaked, trusts keep each other alive, or one is in a static. For tests.
    #[must_use]
    pub fn check_leaks(mut self, check: bool) -> Self {
        self.check_leaks = check;
        self
    }

    /// Pins each runtime thread to a core of its own, counting through all hosts of this machine:
    /// the cores of one NUMA node first, and the second processors of cores when all cores are
    /// taken. Off by default: pinned threads suffer most from whoever else uses their core.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Runs the rack: `main` runs once, in a fiber of thread 0 of host 0, and when it returns the
    /// rack ends. Fibers that are still waiting then are unwound.
    ///
    /// In a process that a daemon has started (`gossamer run`), the rack is that of the job: over TCP
    /// and TLS, or over RDMA if it was built for that; processes of one machine that were not share
    /// its memory. In a task of a Slurm step (`srun`) it is that of the step, in the same way;
    /// elsewhere this call starts the processes of the other hosts.
    ///
    /// In the processes of other hosts this call does not return: they exit when the rack has
    /// ended.
    ///
    /// # Errors
    /// [`RackError`], when the rack did not come up or did not end well.
    ///
    /// # Panics
    /// If `main` panics, with its panic.
    pub fn run<M, R>(mut self, main: M) -> Result<R, RackError>
    where
        M: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        if !trust_core::is_one_image() {
            return Err(RackError::TwoImages);
        }
        let mut others = Others::default();
        let joined = start::assemble(&mut self, &mut others)?;
        if joined.transport.local().0 > 0 {
            let code = match self.serve(joined, None::<fn()>) {
                Ok(_) => 0,
                Err(error) => {
                    eprintln!("gossamer: {error}");
                    1
                }
            };
            std::process::exit(code);
        }
        let result = self.serve(joined, Some(main));
        let result = result.map_err(|error| cause::of_failure(error, &mut others.0));
        others.see_off(result.is_ok());
        Ok(or_unwind(result?).expect("host 0 runs main"))
    }

    /// As [`run`](Self::run), on a transport that is there already: for transports that this crate
    /// does not know. Hosts and threads are those of the transport, whatever was asked for. `main`
    /// is only used on host 0; on the others the call returns `None` when the rack has ended.
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
        let main = (transport.local().0 == 0).then_some(main);
        Ok(or_unwind(self.serve(transport.into(), main)?))
    }

    /// How many threads each host is to have, if somebody has said so.
    #[cfg(feature = "tcp")]
    pub(crate) fn asked_threads(&self) -> Option<u32> {
        self.has_asked.then_some(self.threads)
    }

    /// Takes over what the job says.
    #[cfg(feature = "tcp")]
    pub(crate) fn be_host(&mut self, job: &crate::job::JobDescription) {
        let (before, rest) = job.hosts.split_at(job.host as usize);
        let is_here = |host: &&crate::job::JobHost| host.address.ip() == rest[0].address.ip();
        self.hosts = job.hosts.len() as u32;
        self.threads = rest[0].threads;
        self.pin |= job.pin;
        self.neighbours = Some(before.iter().filter(is_here).map(|host| host.threads).sum());
    }

    /// Whether these settings make sense for `hosts` hosts with `threads` threads each.
    pub(crate) fn check(&self, hosts: u32, threads: u32) -> Result<(), RackError> {
        if hosts == 0 || threads == 0 {
            return Err(RackError::Settings("a rack has at least one host and one thread".into()));
        }
        if self.dedicated >= threads {
            return Err(RackError::Settings(format!(
                "{} dedicated trustees leave no thread for fibers: each host has {threads} threads",
                self.dedicated
            )));
        }
        Ok(())
    }

    /// Runs this host's threads until the rack ends.
    pub(crate) fn serve<M, R>(
        &self,
        joined: Joined,
        main: Option<M>,
    ) -> Result<Option<thread::Result<R>>, RackError>
    where
        M: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let transport = joined.transport;
        // Again, for whoever comes with a transport: it may have other threads than were asked for.
        self.check(transport.hosts(), transport.threads())?;
        let shared = Arc::new(Shared::new(
            transport.clone(),
            self.fibers.clone(),
            self.dedicated,
            self.sleep_after,
            self.on_peer_loss,
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
        // A host that fails because it has lost another says goodbye: it is not the cause.
        let wiring = Wiring::connect(transport.clone(), registered.number(), PATIENCE)
            .map_err(|error| cause::of_wiring(&*transport, error))
            .inspect_err(|_| transport.leave())?;
        #[cfg(feature = "tcp")]
        let _reporter = joined
            .reports
            .map(|socket| Reporter::start(shared.clone(), socket))
            .transpose()
            .map_err(|error| RackError::Start(error.into()))?;
        let outcome = Arc::new(Mutex::new(None));
        self.run_threads(&shared, &wiring, main, &outcome)?;
        transport.leave();
        if let Some(error) = shared.take_failure() {
            return Err(error);
        }
        let outcome = outcome.lock().take();
        match shared.take_unobserved() {
            Some(error) if !matches!(outcome, Some(Err(_))) => Err(error),
            _ => Ok(outcome),
        }
    }

    /// Runs the threads, with `main` as a fiber of the first, until they are told to stop.
    fn run_threads<M, R>(
        &self,
        shared: &Arc<Shared>,
        wiring: &Wiring,
        main: Option<M>,
        outcome: &Arc<Mutex<Option<thread::Result<R>>>>,
    ) -> Result<(), RackError>
    where
        M: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (host, count) = (shared.transport.local(), shared.transport.threads());
        let processors = self.pin.then(Processors::allowed);
        // It is open once all threads are up, and also when they never will be.
        let gate = RwLock::new(());
        thread::scope(|scope| {
            let closed = gate.write();
            let (up, ups) = mpsc::channel();
            let spawn = |number| {
                let (gate, up, processors) = (&gate, up.clone(), &processors);
                let run = move || {
                    let _guard = StopIfPanicking(shared);
                    if let Some(processors) = processors {
                        let before = ThreadId { host, thread: 0 }.number(count);
                        processors.pin(self.neighbours.unwrap_or(before) + number);
                    }
                    let worker = Worker::new(shared.clone(), wiring, number);
                    if let Ok(worker) = &worker {
                        // Nobody listens any more if another thread could not be started.
                        let _ = up.send((number, worker.remote()));
                    }
                    drop(up);
                    drop(gate.read());
                    worker.map(|worker| worker.run())
                };
                let thread = thread::Builder::new().name(format!("gossamer-{}.{number}", host.0));
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
            let main = main.filter(|_| !shared.is_stopping()).map(|main| {
                let (outcome, check_leaks) = (outcome.clone(), self.check_leaks);
                let inside = shared.clone();
                shared.remote(0).spawn(move || {
                    *outcome.lock() = Some(panic::catch_unwind(panic::AssertUnwindSafe(main)));
                    end::end_rack(&inside, check_leaks && matches!(*outcome.lock(), Some(Ok(_))));
                })
            });
            drop(closed);
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
            Ok(())
        })
    }
}

/// What `main` has returned; its panic goes on here.
fn or_unwind<R>(outcome: Option<thread::Result<R>>) -> Option<R> {
    outcome.map(|ended| ended.unwrap_or_else(|panic| panic::resume_unwind(panic)))
}

/// Stops the other threads of this process when one of them panics: they would wait for it for
/// ever.
struct StopIfPanicking<'a>(&'a Shared);

impl Drop for StopIfPanicking<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

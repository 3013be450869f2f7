//! [`Rack`]: the settings of a rack. `run.rs` runs it.

use std::time::Duration;
use std::{env, thread};

use fiber::Config;
#[cfg(feature = "tcp")]
use gossamer_job::{JobDescription, JobHost};
use trust_core::idle::YIELD_FOR;

use crate::RackError;
use crate::arguments::{check_spelling, number, placement};
use crate::policy::Placement;

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
    /// Whether the program or its user has set the number of threads.
    has_threads: bool,
    pub(crate) dedicated: u32,
    pub(crate) sleep_after: Duration,
    pub(crate) fibers: Config,
    pub(crate) worker_stack_bytes: Option<usize>,
    pub(crate) on_peer_loss: OnPeerLoss,
    pub(crate) placement: Placement,
    pub(crate) check_leaks: bool,
    pub(crate) pin: bool,
    #[cfg(feature = "tcp")]
    pub(crate) mixed_processors: bool,
    /// How many runtime threads of other hosts precede this host's on this machine, if that is not
    /// all threads of the hosts before it.
    pub(crate) neighbours: Option<u32>,
    /// `None` if the process keeps the policy that it has.
    #[cfg(feature = "jam")]
    jams: Option<jam::Policy>,
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
    #[must_use]
    pub fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        Self {
            hosts: 1,
            threads,
            has_threads: false,
            dedicated: 0,
            sleep_after: YIELD_FOR,
            fibers: Config::default(),
            worker_stack_bytes: None,
            on_peer_loss: OnPeerLoss::default(),
            placement: Placement::default(),
            check_leaks: false,
            pin: false,
            #[cfg(feature = "tcp")]
            mixed_processors: false,
            neighbours: None,
            #[cfg(feature = "jam")]
            jams: None,
            #[cfg(feature = "rdma")]
            rdma: transport_rdma::RdmaConfig::default(),
        }
    }

    /// A rack as the command line and the environment set it: `--hosts N` (or `GOSSAMER_HOSTS`),
    /// `--threads M` for each host (or `GOSSAMER_THREADS`; without either, the hosts share the processors of
    /// this machine), `--placement own-host` or `rack` (or `GOSSAMER_PLACEMENT`, see [`Placement`]). Other
    /// arguments are left to the program, `--help` too, and so is all that follows `--`. In a job, the job
    /// sets hosts and threads, and those of the command line do not count.
    ///
    /// # Errors
    /// [`RackError::Settings`] if a value is missing or malformed, or one of the three options is mistyped,
    /// as in `--host 2`.
    pub fn from_args() -> Result<Self, RackError> {
        let arguments: Vec<String> =
            env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        check_spelling(&arguments)?;
        let mut rack = Self::new();
        if let Some(hosts) = number(&arguments, "--hosts", "GOSSAMER_HOSTS")? {
            rack = rack.hosts(hosts);
        }
        if let Some(threads) = number(&arguments, "--threads", "GOSSAMER_THREADS")? {
            rack = rack.threads(threads);
        } else {
            rack.threads = (rack.threads / rack.hosts.max(1)).max(1);
        }
        if let Some(placement) = placement(&arguments)? {
            rack = rack.placement(placement);
        }
        Ok(rack)
    }

    /// How jobs use RDMA. Usually the address of this host in the job determines the device;
    /// otherwise name it here or in the environment, as `GOSSAMER_RDMA_DEVICE`.
    #[cfg(feature = "rdma")]
    #[must_use]
    pub fn rdma(mut self, config: crate::RdmaConfig) -> Self {
        self.rdma = config;
        self
    }

    /// How many hosts: processes, each with its own heap and statics. A job sets its own number.
    #[must_use]
    pub fn hosts(mut self, hosts: u32) -> Self {
        self.hosts = hosts;
        self
    }

    /// How many runtime threads each host has. A job sets its own number. Under Slurm all
    /// hosts have the same number, by default as many as the task has processors.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self.has_threads = true;
        self
    }

    /// The number of dedicated trustees of each host, its last threads: the pool gives them all
    /// properties and no fibers. Zero (the default): every thread gets both.
    #[must_use]
    pub fn dedicated_trustees(mut self, threads: u32) -> Self {
        self.dedicated = threads;
        self
    }

    /// How long an idle thread polls before it sleeps (75 microseconds if not set). A wait that
    /// takes a little longer costs a sleep and a wake each time. A thread that polls keeps its core
    /// busy, but yields it to any other thread that needs it. A thread that finds its core contended sleeps
    /// sooner.
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

    /// Bytes of the stack of each runtime thread: the OS threads on which the closures run that
    /// other threads delegate, their callbacks, and the code that encodes and decodes what they are
    /// given. If not set it is the standard library's default for threads: 2 MiB, or what the
    /// environment variable `RUST_MIN_STACK` sets. Only touched pages take memory. Closures on a
    /// fiber's own thread run on the stack of [the fiber](Self::stack_bytes).
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
    /// set, and a host that differs is refused when the rack starts). Only for programs that
    /// delegate no closure which captures a token that asserts a feature, as
    /// [`Delegable`](crate::Delegable) explains.
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

    /// Where values and fibers go that name no trustee.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Whose jams and rieds the hosts of the rack run ([`Policy::Signed`](jam::Policy::Signed) if not
    /// set): each process that runs these settings sets the policy of its
    /// [`receiver`](jam::receiver()) before another host can reach it. The policy is that of the
    /// process, so it outlasts the rack, and [`set_policy`](jam::Receiver::set_policy) changes it
    /// later.
    ///
    /// Where others could forge data ([`Transport::is_authenticated`](transport_api::Transport::is_authenticated)), as
    /// over RDMA, `AnyPeer` admits no more than `Signed`.
    ///
    /// ```
    /// use gossamer::Rack;
    /// use gossamer::jam::{Policy, Refusal, receiver};
    ///
    /// let refused = Rack::new().threads(1).jams(Policy::Nothing).run(|| {
    ///     let library = b"a library that another host sends";
    ///     receiver().load_ried(library).unwrap_err()
    /// })?;
    /// assert!(refused.to_string().contains("its policy is `Nothing`"), "{refused}");
    /// # Ok::<(), gossamer::RackError>(())
    /// ```
    #[cfg(feature = "jam")]
    #[must_use]
    pub fn jams(mut self, policy: jam::Policy) -> Self {
        self.jams = Some(policy);
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
    /// taken. Off by default: pinned threads suffer most from other programs on their core.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Sets whose jams this process runs, if the program has set it.
    pub(crate) fn set_jam_policy(&self) {
        #[cfg(feature = "jam")]
        if let Some(policy) = self.jams {
            jam::receiver().set_policy(policy);
        }
    }

    /// The number of threads of each host, if the program or its user has set it.
    #[cfg(feature = "tcp")]
    pub(crate) fn requested_threads(&self) -> Option<u32> {
        self.has_threads.then_some(self.threads)
    }

    /// Replaces settings by those of the job.
    #[cfg(feature = "tcp")]
    pub(crate) fn apply_job(&mut self, job: &JobDescription) {
        let (before, rest) = job.hosts.split_at(job.host as usize);
        let is_here = |host: &&JobHost| host.address.ip() == rest[0].address.ip();
        self.hosts = job.hosts.len() as u32;
        self.threads = rest[0].threads;
        self.pin |= job.pin;
        self.neighbours = Some(before.iter().filter(is_here).map(|host| host.threads).sum());
    }

    /// Whether these settings make sense for `hosts` hosts with `threads` threads each.
    pub(crate) fn check(&self, hosts: u32, threads: u32) -> Result<(), RackError> {
        if hosts == 0 || threads == 0 {
            return Err(RackError::Settings(format!(
                "a rack needs at least one host and one thread, got {hosts} hosts of {threads} threads"
            )));
        }
        if self.dedicated >= threads {
            return Err(RackError::Settings(format!(
                "{0} dedicated trustees leave no thread for fibers: give each host more than {0} \
                 threads, got {threads}",
                self.dedicated
            )));
        }
        Ok(())
    }
}

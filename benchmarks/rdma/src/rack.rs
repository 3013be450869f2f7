//! Gossamer as a candidate: a rack of two processes of one thread each, which find each other as
//! tasks of a Slurm step do, and have an RDMA device each.

use std::env;
use std::ffi::OsString;
use std::hint::black_box;
use std::process::{self, ExitCode};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bench_kit::measure::sampling::{CaseError, Sampler};
use bench_kit::measure::watch::WaitMode;
use bench_kit::product::get::GetPlan;
use bench_kit::product::jam::calls::JamPlan;
use bench_kit::product::sample::{Load, StopFlag, measure_load};
use bench_kit::product::share::{Delegated, send_from_fibers, send_window};
use bench_kit::roles::{Lifeline, Role, RoleProcess};
use bench_kit::work::{Adder, Section, Think};
use gossamer::{Rack, RdmaConfig, Trust};
use gossamer_job::Secret;

use crate::Host;

/// One host of the rack.
pub(crate) const HOST: Role = Role { name: "gossamer-host", run: host };

const SENDER: &str = "RDMA_BENCH_SENDER";
const INLINE: &str = "RDMA_BENCH_INLINE";
const SLEEPS: &str = "RDMA_BENCH_SLEEPS";
const TIME: &str = "RDMA_BENCH_NS";

/// How long a thread looks for work where it is not to sleep: perftest's never do, and the time
/// after which a rack's do by itself is over before an emulated device has answered.
const AWAKE: Duration = Duration::from_millis(100);

/// The time of round trips before the measured ones.
const WARM_UP: Duration = Duration::from_millis(50);

/// The sender of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A fiber that waits for each answer and takes its time; all others are counted.
    OneFiber,
    /// A fiber with this number of requests in flight.
    Window(usize),
    /// A fiber that sends this number of requests, and waits until all are answered.
    Batch(usize),
    /// This number of fibers, each of which waits for its answer.
    Fibers(usize),
    /// Fibers that ask for values instead.
    Get(GetPlan),
    /// A fiber that calls jams, or what takes their place.
    Jam(JamPlan),
}

impl Sender {
    /// Its name in the report.
    pub(crate) fn text(self) -> String {
        match self {
            Sender::OneFiber => "apply".to_owned(),
            Sender::Window(window) => format!("apply_then, {window} outstanding"),
            Sender::Batch(size) => format!("apply_then, batches of {size}"),
            Sender::Fibers(fibers) => format!("apply, {fibers} fibers"),
            Sender::Get(plan) => plan.text(),
            Sender::Jam(plan) => plan.text(),
        }
    }

    /// The sender of this name.
    fn named(text: &str) -> Option<Sender> {
        match *text.split(' ').collect::<Vec<_>>() {
            ["apply"] => Some(Sender::OneFiber),
            ["apply,", fibers, "fibers"] => fibers.parse().ok().map(Sender::Fibers),
            ["apply_then,", window, "outstanding"] => window.parse().ok().map(Sender::Window),
            ["apply_then,", "batches", "of", size] => size.parse().ok().map(Sender::Batch),
            _ => {
                let jam = || JamPlan::named(text).map(Sender::Jam);
                GetPlan::named(text).map(Sender::Get).or_else(jam)
            }
        }
    }
}

/// The task of a rack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) sender: Sender,
    /// Whether work requests carry small writes in themselves.
    pub(crate) inline: bool,
    /// Whether threads sleep when they have found no work for as long as a rack's usually look.
    pub(crate) sleeps: bool,
    pub(crate) time: Duration,
}

/// Host 0, on the first core and device, sends to host 1, on the second: the median of half a round
/// trip in microseconds if it sends alone, or else answered requests per second.
pub(crate) fn figure(sampler: &Sampler, hosts: &[Host; 2], plan: Plan) -> Result<f64, CaseError> {
    static RACKS: AtomicU32 = AtomicU32::new(0);
    // Tasks find each other by the number of their step, so each rack has its own.
    let step = RACKS.fetch_add(1, Relaxed);
    let start = |rank: usize, core| {
        let variables: [(&str, OsString); 13] = [
            (SENDER, plan.sender.text().into()),
            (INLINE, plan.inline.to_string().into()),
            (SLEEPS, plan.sleeps.to_string().into()),
            (TIME, plan.time.as_nanos().to_string().into()),
            ("GOSSAMER_RDMA_DEVICE", hosts[rank].device.clone().into()),
            ("GOSSAMER_SECRET", Secret::new([1; 32]).to_hex().into()),
            ("SLURM_JOB_ID", process::id().to_string().into()),
            ("SLURM_STEP_ID", step.to_string().into()),
            ("SLURM_STEP_NUM_TASKS", "2".into()),
            ("SLURM_STEP_NODELIST", "localhost".into()),
            ("SLURM_NODEID", "0".into()),
            ("SLURM_STEP_TASKS_PER_NODE", "2".into()),
            ("SLURM_PROCID", rank.to_string().into()),
        ];
        RoleProcess::spawn(HOST, Some(core), &variables)
    };
    let _server = start(1, sampler.cores.second)?;
    let line = start(0, sampler.cores.first)?.first_line()?;
    line.parse().map_err(|_| CaseError::Failed(line))
}

/// Ignores its lifeline: the hosts of a rack end together.
fn host(_: Lifeline) -> ExitCode {
    match take_part() {
        Ok(figure) => {
            println!("{figure}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            // The case reads this line and reports it as the error.
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Returns on host 0 only.
fn take_part() -> Result<f64, Box<dyn std::error::Error>> {
    let time = Duration::from_nanos(env::var(TIME)?.parse()?);
    let sender = Sender::named(&env::var(SENDER)?).ok_or("unknown sender")?;
    let mut config = RdmaConfig::default();
    if !env::var(INLINE)?.parse::<bool>()? {
        config.inline_bytes = 0;
    }
    let mut rack = Rack::new().threads(1).rdma(config);
    if !env::var(SLEEPS)?.parse::<bool>()? {
        rack = rack.sleep_after(AWAKE);
    }
    let figure = rack.run(move || {
        let sum = || {
            let other = gossamer::threads().nth(1).expect("a rack of two");
            other.entrust_with(|()| Adder::fresh(), ())
        };
        let think = Think::of_ns(0);
        match sender {
            Sender::OneFiber => half_round_trip_us(&sum(), time),
            Sender::Window(window) => {
                measure_load(send_window(sum(), window, think), time).per_second
            }
            Sender::Batch(size) => measure_load(send_batches(sum(), size), time).per_second,
            Sender::Fibers(fibers) => {
                measure_load(send_from_fibers(sum(), fibers, think), time).per_second
            }
            Sender::Get(plan) => measure_load(plan.start(), time).per_second,
            Sender::Jam(plan) => measure_load(plan.start(), time).per_second,
        }
    });
    Ok(figure?)
}

/// Starts a fiber that sends `size` requests and waits until all are answered: they leave when it
/// begins to wait, in one batch.
fn send_batches(sum: Trust<Adder>, size: usize) -> Load {
    let stop = StopFlag::default();
    let fiber = {
        let (sum, stop) = (sum.clone(), stop.clone());
        gossamer::spawn(move || {
            let mut seed = 0;
            while !stop.is_set() {
                for _ in 1..size {
                    Adder::ask_then(&sum, seed, |answer| {
                        black_box(answer);
                    });
                    seed += 1;
                }
                black_box(Adder::ask(&sum, seed));
            }
        })
    };
    let done = Box::new(move || sum.apply(|sum| sum.runs()));
    Load { stop, fibers: vec![fiber], done, others: WaitMode::Polls }
}

/// The median of half of each round trip that fits into `time`, in microseconds.
fn half_round_trip_us(sum: &Trust<Adder>, time: Duration) -> f64 {
    round_trips(sum, WARM_UP);
    let mut trips = round_trips(sum, time);
    trips.sort_unstable();
    trips[trips.len() / 2].as_secs_f64() * 1e6 / 2.0
}

/// The durations of the round trips that fit into `time`; at least one.
fn round_trips(sum: &Trust<Adder>, time: Duration) -> Vec<Duration> {
    let (start, mut trips) = (Instant::now(), Vec::new());
    let mut began = start;
    loop {
        black_box(Adder::ask(sum, trips.len() as u64));
        let now = Instant::now();
        trips.push(now - began);
        began = now;
        if now - start > time {
            return trips;
        }
    }
}

#[cfg(test)]
mod tests {
    use gossamer::ReadMode;

    use super::*;

    #[test]
    fn senders_are_found_by_their_names() {
        let get = Sender::Get(GetPlan { mode: ReadMode::OneSided, bytes: 100, fibers: 64 });
        let fibers = Sender::Fibers(64);
        for sender in [Sender::OneFiber, Sender::Window(16), Sender::Batch(4), fibers, get] {
            assert_eq!(Sender::named(&sender.text()), Some(sender));
        }
        assert_eq!(Sender::named("apply_then, many"), None);
        assert_eq!(Sender::named(""), None);
    }
}

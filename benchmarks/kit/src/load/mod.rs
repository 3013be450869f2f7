//! Idle and oversubscribed: what threads that wait cost, and how soon they answer when cores are
//! scarce.
//!
//! Whatever is measured implements [`Subject`]; [`idle_share`], [`lone_request`] and [`storm`] make
//! cases of it. [`Stress`] keeps memory busy beside other measurements.

mod hog;
pub mod reference;
mod stress;

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

pub use hog::{HOG, Hog};
pub use stress::{STRESS, Stress};

use crate::harness::{Case, Unit};
use crate::measure::sampling::{CaseError, Reading, Sampler};
use crate::measure::watch::{cpu_of_process, process_cpu};

/// How long an idle subject is observed.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// Time that a subject gets to become idle before it is observed.
const SETTLING_TIME: Duration = Duration::from_millis(300);
/// Lone requests per sample; together with the pauses at most [`LONE_TIME`].
const LONE_REQUESTS: usize = 400;
const LONE_TIME: Duration = Duration::from_secs(2);
/// The pause before a lone request, long enough for every kind of waiting to have reached its end.
const LONE_PAUSE: Duration = Duration::from_micros(1_500);

/// How many threads serve, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Threads that the subject starts.
    pub threads: usize,
    /// Whether all of them are pinned to the second core, where the hog lives too.
    pub beside_hog: bool,
}

impl Setting {
    /// `threads` threads wherever the kernel puts them.
    pub fn free(threads: usize) -> Setting {
        Setting { threads, beside_hog: false }
    }

    /// One thread that shares its core with a process that never sleeps.
    pub fn beside_hog() -> Setting {
        Setting { threads: 1, beside_hog: true }
    }

    fn text(self) -> String {
        match (self.threads, self.beside_hog) {
            (1, false) => "1 thread".to_owned(),
            (threads, false) => format!("{threads} threads"),
            (threads, true) => format!("{threads} beside a hog"),
        }
    }
}

/// Something with threads of its own that serves requests.
pub trait Subject {
    /// Its name in the report.
    fn name(&self) -> &str;

    /// Starts `threads` threads, pinned to `core` when one is given.
    ///
    /// # Errors
    /// When they cannot be started.
    fn start(&self, threads: usize, core: Option<usize>) -> Result<Box<dyn Running>, CaseError>;
}

/// A started [`Subject`]; dropping it ends its threads.
pub trait Running {
    /// Sends one request, from the calling thread if need be, and waits for its answer.
    ///
    /// # Errors
    /// When no answer can come any more.
    fn request(&mut self) -> Result<(), CaseError>;

    /// Rests for `pause`, then does as [`Running::request`], and returns how long that alone took.
    ///
    /// # Errors
    /// When no answer can come any more.
    fn lone_request(&mut self, pause: Duration) -> Result<Duration, CaseError> {
        thread::sleep(pause);
        let asked = Instant::now();
        self.request()?;
        Ok(asked.elapsed())
    }

    /// Keeps all its threads busy with requests for `time`, and returns how many were answered.
    ///
    /// # Errors
    /// When an answer cannot come any more.
    fn storm(&mut self, time: Duration) -> Result<u64, CaseError>;

    /// Processes that belong to it beside this one.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// CPU time of the subject and of this process, in percent of one core, while nothing is asked of
/// it for two seconds.
pub fn idle_share(subject: Rc<dyn Subject>, threads: usize) -> Case {
    let name = format!("{}, {}", subject.name(), Setting::free(threads).text());
    Case::new(name, Unit::Percent, move |_room| {
        let mut running = subject.start(threads, None)?;
        running.request()?;
        thread::sleep(SETTLING_TIME);
        let used = || -> Result<Duration, CaseError> {
            let others = running.processes().into_iter().map(cpu_of_process);
            Ok(others.sum::<std::io::Result<Duration>>()? + process_cpu())
        };
        let (start, before) = (Instant::now(), used()?);
        thread::sleep(IDLE_TIME);
        let used = used()? - before;
        Ok(Reading::of(100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64()))
    })
}

/// Median latency of single requests to a subject that is idle before each of them.
pub fn lone_request(subject: Rc<dyn Subject>, setting: Setting) -> Case {
    let name = format!("{}, {}", subject.name(), setting.text());
    Case::new(name, Unit::Microseconds, move |sampler| {
        let (mut running, _hog) = start(&*subject, setting, sampler)?;
        let (start, mut latencies) = (Instant::now(), Vec::new());
        while latencies.len() < LONE_REQUESTS && start.elapsed() < LONE_TIME {
            latencies.push(running.lone_request(LONE_PAUSE)?);
        }
        latencies.sort_unstable();
        Ok(Reading::of(latencies[latencies.len() / 2].as_secs_f64() * 1e6))
    })
}

/// Requests answered while every thread of the subject is as busy as it can be.
pub fn storm(subject: Rc<dyn Subject>, setting: Setting) -> Case {
    let name = format!("{}, {}", subject.name(), setting.text());
    Case::new(name, Unit::Mops, move |sampler| {
        let (mut running, _hog) = start(&*subject, setting, sampler)?;
        let start = Instant::now();
        let answered = running.storm(sampler.time)?;
        Ok(Reading::of(answered as f64 / start.elapsed().as_secs_f64() / 1e6))
    })
}

type Started = (Box<dyn Running>, Option<Hog>);

fn start(subject: &dyn Subject, setting: Setting, sampler: &Sampler) -> Result<Started, CaseError> {
    let core = setting.beside_hog.then_some(sampler.cores.second);
    let mut running = subject.start(setting.threads, core)?;
    running.request()?;
    let hog = core.map(Hog::on).transpose()?;
    Ok((running, hog))
}

/// Whether a storm is answered. It may be over before a busy machine has let anybody work; so there
/// are several.
#[cfg(test)]
pub(crate) fn is_answered(running: &mut dyn Running) -> bool {
    (0..1000).any(|_| running.storm(Duration::from_millis(5)).expect("answers") > 0)
}

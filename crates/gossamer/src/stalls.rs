//! [`StallReporter`]: reports fibers that wait too long, for what, since when, and held by which other
//! fiber, and threads that are kept busy. A debugging aid, on only when the environment variable
//! `GOSSAMER_STALL` sets the shortest wait to report; see [`Rack::run`](crate::Rack::run).
//!
//! One thread of the process asks the fibers ([`fiber::waiting_fibers`]), four times within that time.
//! Nothing is noted when a fiber begins to wait, so the path of a request does not change.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use fiber::{FiberId, JoinHandle, JoinTimeout, UserSignals, WaitingFiber};
use transport_api::ThreadId;

use crate::RackError;
use crate::shared::{Shared, thread_name};

/// The environment variable that turns reports on.
const VARIABLE: &str = "GOSSAMER_STALL";
/// How long a thread has to answer before it counts as busy for now.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// How long the text of an answer may take: it may have to be fetched from another host.
const TEXT_TIME: Duration = Duration::from_secs(1);
/// The longest time between two questions.
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
/// How often the thread looks for a signal.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);

/// The shortest wait that the user wants reported; `None` for no reports.
///
/// # Errors
/// [`RackError::Settings`], if the variable is malformed.
pub(crate) fn limit() -> Result<Option<Duration>, RackError> {
    let Some(value) = env::var_os(VARIABLE) else { return Ok(None) };
    let value = value.to_string_lossy();
    parse(&value).map(Some).ok_or_else(|| {
        RackError::Settings(format!(
            "invalid {VARIABLE} {value:?}: expected a time such as 10s, 500ms or 2m (a number alone is seconds)"
        ))
    })
}

fn parse(value: &str) -> Option<Duration> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" | "" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

/// A thread that reports until it is dropped.
pub(crate) struct StallReporter {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl StallReporter {
    /// Reports the fibers of `shared` that wait for `limit` or longer, to standard error; and all that
    /// wait when the process gets a SIGUSR2.
    ///
    /// # Errors
    /// The error of the system, if it starts no thread or installs no handler.
    pub(crate) fn start(shared: Arc<Shared>, limit: Duration) -> io::Result<Self> {
        // Here, not in the thread, which may run for the first time long after the program has begun.
        let mut signals = UserSignals::install()?;
        let (stop, stopped) = mpsc::channel();
        let report = move || {
            let period = (limit / 4).min(LONGEST_PERIOD).max(Duration::from_millis(1));
            let mut questions = Questions::new(shared, limit);
            let mut next = Instant::now() + period;
            while stopped.recv_timeout(period.min(SIGNAL_PERIOD))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                let is_asked = signals.received();
                if !is_asked && Instant::now() < next {
                    continue;
                }
                questions.ask();
                let report = if is_asked { questions.everything() } else { questions.stalls() };
                next = Instant::now() + period;
                // In one piece: the processes of a rack often share their standard error.
                if let Some(report) = report {
                    let _ = io::stderr().write_all(report.as_bytes());
                }
            }
        };
        let thread = thread::Builder::new().name("gossamer-stalls".into()).spawn(report)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StallReporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the threads of the process have answered.
struct Questions {
    shared: Arc<Shared>,
    limit: Duration,
    /// By thread: a question that it has not answered yet, and when it was asked.
    unanswered: HashMap<u32, (JoinHandle<Vec<WaitingFiber>>, Instant)>,
    /// The answers to the last question.
    waiting: Vec<(u32, WaitingFiber)>,
    /// What has been reported and lasts.
    reported: HashSet<Stall>,
}

/// Names a wait that lasts too long, or a thread that is busy too long; when that began.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stall {
    thread: u32,
    fiber: Option<FiberId>,
    since: Instant,
}

impl Questions {
    fn new(shared: Arc<Shared>, limit: Duration) -> Self {
        Self {
            shared,
            limit,
            unanswered: HashMap::new(),
            waiting: Vec::new(),
            reported: HashSet::new(),
        }
    }

    /// Asks each thread what its fibers wait for; one that has not answered the last time is not
    /// asked again.
    fn ask(&mut self) {
        self.waiting.clear();
        let Some(remotes) = self.shared.remotes.get() else { return };
        for (thread, remote) in (0..).zip(remotes) {
            self.unanswered
                .entry(thread)
                .or_insert_with(|| (remote.spawn(fiber::waiting_fibers), Instant::now()));
        }
        let until = Instant::now() + ANSWER_TIME;
        for thread in 0..self.shared.transport.threads() {
            let Some((question, asked)) = self.unanswered.remove(&thread) else { continue };
            match question.join_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(waiting) => {
                    self.waiting.extend(waiting.into_iter().map(|fiber| (thread, fiber)));
                }
                Err(JoinTimeout::TimedOut(question)) => {
                    self.unanswered.insert(thread, (question, asked));
                }
                // The rack ends.
                Err(JoinTimeout::Failed(_)) => {}
            }
        }
    }

    /// All waits that are too long, if one of them was not reported before.
    fn stalls(&mut self) -> Option<String> {
        let now = Instant::now();
        let lasts = |since: Instant| now.saturating_duration_since(since) >= self.limit;
        let busy = self.unanswered.iter().map(|(thread, (_, since))| Stall {
            thread: *thread,
            fiber: None,
            since: *since,
        });
        let waits = self.waiting.iter().filter_map(|(thread, fiber)| {
            let since = fiber.since()?;
            Some(Stall { thread: *thread, fiber: Some(fiber.id), since })
        });
        let stalls: HashSet<_> = busy.chain(waits).filter(|stall| lasts(stall.since)).collect();
        let is_new = !stalls.is_subset(&self.reported);
        self.reported = stalls;
        if !is_new {
            return None;
        }
        let host = self.shared.transport.local();
        let heading = format!("gossamer: no progress for {} on {host}", Shown(self.limit));
        let (limit, waiting) = (self.limit, std::mem::take(&mut self.waiting));
        let is_stalled = |fiber: &WaitingFiber| {
            fiber.since().is_some_and(|since| now.saturating_duration_since(since) >= limit)
        };
        let waiting = waiting.into_iter().filter(|(_, fiber)| is_stalled(fiber)).collect();
        Some(self.text(heading, waiting, now))
    }

    /// Everything that waits.
    fn everything(&mut self) -> Option<String> {
        let (host, waiting) = (self.shared.transport.local(), std::mem::take(&mut self.waiting));
        let fibers = if waiting.len() == 1 {
            "1 fiber waits"
        } else {
            &format!("{} fibers wait", waiting.len())
        };
        let heading = format!("gossamer: {fibers} on {host}");
        Some(self.text(heading, waiting, Instant::now()))
    }

    fn text(&self, mut text: String, waiting: Vec<(u32, WaitingFiber)>, now: Instant) -> String {
        let host = self.shared.transport.local();
        let thread_of = |thread| ThreadId { host, thread };
        // A text may come from another thread, or host, and that may be stuck.
        let shown: Vec<_> = waiting
            .into_iter()
            .map(|(thread, fiber)| {
                let known = (fiber.name.clone(), thread_of(thread), fiber.since(), fiber.place());
                (known, self.shared.remote(thread).spawn(move || fiber.what().to_string()))
            })
            .collect();
        text.push(':');
        let until = Instant::now() + TEXT_TIME;
        for ((name, thread, since, place), what) in shown {
            let left = until.saturating_duration_since(Instant::now());
            let what = what.join_timeout(left).unwrap_or_else(|_| {
                "something that is not known: the thread that knows it does not answer".to_owned()
            });
            let _ = write!(text, "\n  {name} of {thread} ");
            let _ = match since.map(|since| now.saturating_duration_since(since).as_secs_f64()) {
                Some(seconds) => write!(text, "has waited at least {seconds:.1} s for {what}"),
                None => write!(text, "waits for {what}"),
            };
            if let Some(place) = place {
                let _ = write!(text, ", at {place}");
            }
        }
        for (thread, (_, since)) in &self.unanswered {
            let seconds = now.saturating_duration_since(*since).as_secs_f64();
            let (id, process) = (thread_of(*thread), std::process::id());
            let name = thread_name(id);
            // What it runs, only the thread itself knows: nothing is noted when a fiber goes on.
            let _ = write!(
                text,
                "\n  {id} has been busy or blocked for {seconds:.1} s: a fiber or a delegated \
                 closure there does not let others run; the stack of thread '{name}' of process \
                 {process} shows which (`gdb -p {process} -batch -ex 'thread apply all bt'`); see \
                 \"Blocking\" and \"Where a fiber must not wait\" in Gossamer's docs/guide.md"
            );
        }
        text.push('\n');
        text
    }
}

/// A time as headings show it: `10 s`, `300 ms`.
struct Shown(Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            milliseconds if milliseconds % 1000 == 0 => write!(f, "{} s", milliseconds / 1000),
            milliseconds => write!(f, "{milliseconds} ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_or_refused() {
        let read = [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("7", 7_000)];
        for (value, milliseconds) in read {
            assert_eq!(parse(value), Some(Duration::from_millis(milliseconds)), "{value}");
        }
        let most = u64::MAX.to_string() + "m";
        for value in ["", "s", "0s", "10 s", "-1s", "1.5s", "10h", "99999999999999999999s", &most] {
            assert_eq!(parse(value), None, "{value}");
        }
    }
}

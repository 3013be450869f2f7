//! [`Starvation`]: how long threads of a rack have waited for a processor.
//!
//! A rack must end soon after a kill, but not before its threads get a processor. On a machine whose
//! processors are busy with other programs, a runnable thread may wait a second for its turn. That
//! also delays the end of the victim: a process that was killed keeps its connections, and its
//! pidfd stays silent, until its last thread has had a processor once more. So this process gives
//! a rack the time that the thread which waited longest has waited.
//!
//! The kernel counts a wait when it ends. One that has not ended is found by samples: its thread is
//! runnable and has not run since.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::procfs::{self, Scheduling};

/// Time between two samples: longer than that between two ticks of the kernel, in which the
/// counters of a thread that runs may stand still.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// How long threads of a rack have waited for a processor since the first sample.
#[derive(Default)]
pub(super) struct Starvation {
    threads: BTreeMap<u32, Thread>,
    sampled: Option<Instant>,
    longest: Duration,
}

struct Thread {
    /// How long it had waited at its first sample.
    first: Duration,
    /// How long it had run at its last sample.
    ran: Duration,
    /// The first sample since which it is runnable and has not run.
    since: Instant,
}

impl Starvation {
    /// Whether the next sample is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.sampled.is_none_or(|sampled| now >= sampled + SAMPLE_INTERVAL)
    }

    /// Takes a sample of all threads of the rack, which has these processes, and of this one: if
    /// this process waits for a processor, it sees the end late.
    pub(super) fn sample(&mut self, now: Instant, processes: impl IntoIterator<Item = u32>) {
        let all = processes.into_iter().chain([std::process::id()]);
        self.note(now, all.flat_map(procfs::scheduling));
    }

    /// Notes a sample of threads, by id.
    fn note(&mut self, now: Instant, threads: impl IntoIterator<Item = (u32, Scheduling)>) {
        self.sampled = Some(now);
        for (id, Scheduling { is_runnable, ran, waited }) in threads {
            let fresh = || Thread { first: waited, ran, since: now };
            let thread = self.threads.entry(id).or_insert_with(fresh);
            if !is_runnable || thread.ran != ran {
                (thread.ran, thread.since) = (ran, now);
            }
            let waited = waited.saturating_sub(thread.first) + (now - thread.since);
            self.longest = self.longest.max(waited);
        }
    }

    /// How long the thread that has waited longest had waited at the last sample, in total.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn thread(is_runnable: bool, ran: u64, waited: u64) -> Scheduling {
        Scheduling { is_runnable, ran: millis(ran), waited: millis(waited) }
    }

    #[test]
    fn a_wait_counts_while_it_lasts_and_once_when_it_has_ended() {
        let (mut starvation, start) = (Starvation::default(), Instant::now());
        assert!(starvation.is_due(start));
        let mut sample = |at, scheduling| {
            starvation.note(start + millis(at), [(7, scheduling)]);
            starvation.longest()
        };
        assert_eq!(sample(0, thread(true, 5, 100)), millis(0), "what was before does not count");
        assert_eq!(sample(600, thread(true, 5, 100)), millis(600));
        assert_eq!(sample(1000, thread(true, 6, 1000)), millis(900), "it has run since");
        assert_eq!(sample(1300, thread(true, 6, 1000)), millis(1200));
        assert_eq!(sample(1400, thread(false, 7, 1350)), millis(1250));
        assert_eq!(sample(9000, thread(false, 7, 1350)), millis(1250), "it sleeps");
    }

    #[test]
    fn neither_a_thread_that_sleeps_nor_one_that_runs_waits_for_a_processor() {
        let (mut starvation, start) = (Starvation::default(), Instant::now());
        for at in (0..2000).step_by(20) {
            let threads = [(1, thread(false, 3, 8)), (2, thread(true, at, 0))];
            starvation.note(start + millis(at), threads);
        }
        assert_eq!(starvation.longest(), millis(0));
        let last = start + millis(1980);
        assert!(!starvation.is_due(last + millis(19)) && starvation.is_due(last + millis(20)));
    }

    #[test]
    fn the_thread_that_has_waited_longest_counts_also_when_it_has_ended() {
        let (mut starvation, start) = (Starvation::default(), Instant::now());
        starvation.note(start, [(1, thread(true, 0, 0)), (2, thread(true, 0, 0))]);
        starvation.note(start + millis(90), [(1, thread(true, 1, 50)), (2, thread(true, 0, 0))]);
        starvation.note(start + millis(200), [(1, thread(false, 1, 60))]);
        assert_eq!(starvation.longest(), millis(90));
    }
}

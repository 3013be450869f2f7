//! [`Samples`]: the last two reports of a process.

use std::collections::VecDeque;
use std::time::Instant;

use daemon_protocol::{JobStatistics, JobSummary};
use gossamer_job::ProcessStatistics;
use parking_lot::Mutex;

/// The last two reports of a process, the older one first.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<VecDeque<(Instant, ProcessStatistics)>>);

impl Samples {
    pub(crate) fn add(&self, report: ProcessStatistics) {
        let mut samples = self.0.lock();
        if samples.len() == 2 {
            samples.pop_front();
        }
        samples.push_back((Instant::now(), report));
    }

    /// The reports of the process with this summary.
    pub(crate) fn of(&self, summary: JobSummary) -> JobStatistics {
        let mut samples: Vec<_> = self.0.lock().iter().cloned().collect();
        let now = samples.pop();
        let age_ms = now.as_ref().map_or(0, |(came, _)| came.elapsed().as_millis() as u64);
        let threads = |sample: Option<(Instant, ProcessStatistics)>| {
            sample.map(|(_, report)| report.threads).unwrap_or_default()
        };
        JobStatistics { summary, age_ms, now: threads(now), before: threads(samples.pop()) }
    }

    /// The queue pairs of the process in its last report.
    pub(crate) fn queue_pairs(&self) -> u32 {
        self.0.lock().back().map_or(0, |(_, report)| report.queue_pairs)
    }
}

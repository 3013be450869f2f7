//! Rates per second for `gossamer top`, computed from counts at two times.

use std::collections::HashMap;

use daemon_protocol::{JobStatistics, Name};
use gossamer_job::{JobId, ThreadStatistics};
use serde::Serialize;

use crate::controller::tables::{size, table};
use crate::escape;

/// A process without a report for this many milliseconds counts as stalled.
const STILL_MS: u64 = 3000;

/// The activity of one thread of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadRow {
    /// The job.
    pub job: JobId,
    /// The name of its program.
    pub program: String,
    /// The thread's host, with the number of its process if the job has several there.
    pub host: String,
    /// Its number there.
    pub thread: u32,
    /// Its rates; `None` if the process has just started or has stopped.
    pub rates: Option<Rates>,
    /// Requests to it that are not served yet.
    pub unserved: u64,
    /// Requests from it that have no reply yet.
    pub unanswered: u64,
    /// Fibers that have not ended.
    pub fibers: u64,
}

/// Rates of a thread, per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Requests that it serves for other threads.
    pub requests_in: f64,
    /// Requests that it sends to other threads.
    pub requests_out: f64,
    /// Bytes received from other threads.
    pub bytes_in: f64,
    /// Bytes sent to other threads.
    pub bytes_out: f64,
    /// The share of time in which it is busy, from 0 to 1.
    pub busy: f64,
}

impl Rates {
    fn between(before: &ThreadStatistics, now: &ThreadStatistics) -> Option<Self> {
        let nanoseconds = now.at_ns.checked_sub(before.at_ns).filter(|time| *time > 0)? as f64;
        // A process may report false values: a count that decreases is shown as zero.
        let more = |before: u64, now: u64| now.saturating_sub(before) as f64;
        let rate = |before, now| more(before, now) / nanoseconds * 1e9;
        Some(Self {
            requests_in: rate(before.requests_in, now.requests_in),
            requests_out: rate(before.requests_out, now.requests_out),
            bytes_in: rate(before.bytes_in, now.bytes_in),
            bytes_out: rate(before.bytes_out, now.bytes_out),
            busy: (1.0 - more(before.idle_ns, now.idle_ns) / nanoseconds).clamp(0.0, 1.0),
        })
    }
}

/// The threads of all jobs, from the answers of the hosts: the oldest job first, and the threads of each in the
/// order of its hosts.
pub fn rows(answers: &[(Name, JobStatistics)]) -> Vec<ThreadRow> {
    let mut answers: Vec<_> = answers.iter().collect();
    // Each host says when it heard of the job, so the hosts of one may differ.
    let mut began = HashMap::new();
    for (_, JobStatistics { summary, .. }) in &answers {
        let began = began.entry(summary.job).or_insert(summary.since);
        *began = summary.since.min(*began);
    }
    answers.sort_by_key(|(_, JobStatistics { summary, .. })| {
        (began[&summary.job], summary.job, summary.host)
    });
    let threads = |(host, job): &(Name, JobStatistics)| {
        let moves = job.age_ms < STILL_MS;
        let row = |(number, now): (u32, &ThreadStatistics)| ThreadRow {
            job: job.summary.job,
            program: job.summary.program.clone(),
            host: job.summary.process().name(host),
            thread: number,
            rates: (job.before.get(number as usize).filter(|_| moves))
                .and_then(|before| Rates::between(before, now)),
            unserved: now.unserved,
            unanswered: now.unanswered,
            fibers: now.fibers,
        };
        (0..).zip(&job.now).map(row).collect::<Vec<_>>()
    };
    answers.into_iter().flat_map(threads).collect()
}

/// The names of the columns.
pub(crate) const HEAD: [&str; 11] = [
    "JOB", "PROGRAM", "HOST", "THREAD", "IN/S", "OUT/S", "QUEUE", "FIBERS", "BUSY", "B IN/S",
    "B OUT/S",
];

/// The columns of a row.
pub(crate) fn cells(row: &ThreadRow) -> [String; HEAD.len()] {
    let rate = |of: fn(&Rates) -> String| row.rates.as_ref().map_or_else(|| "-".into(), of);
    [
        row.job.to_string().chars().take(8).collect(),
        escape::name(&row.program).into_owned(),
        row.host.clone(),
        row.thread.to_string(),
        rate(|rates| count(rates.requests_in)),
        rate(|rates| count(rates.requests_out)),
        format!("{}+{}", row.unserved, row.unanswered),
        row.fibers.to_string(),
        rate(|rates| format!("{:.0}%", rates.busy * 100.0)),
        rate(|rates| size(rates.bytes_in as u64)),
        rate(|rates| size(rates.bytes_out as u64)),
    ]
}

/// The rows as a table.
pub fn thread_table(rows: &[ThreadRow]) -> String {
    table(HEAD, rows.iter().map(cells))
}

/// A number with three or four digits.
pub(crate) fn count(value: f64) -> String {
    const UNITS: [&str; 4] = ["", "k", "M", "G"];
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let digits = usize::from(unit > 0 && value < 99.95);
    format!("{value:.digits$}{}", UNITS[unit])
}

#[cfg(test)]
pub(crate) mod tests {
    use daemon_protocol::JobSummary;

    use super::*;

    pub(crate) fn said(job: u128, host: u32, at: u64, before: bool) -> JobStatistics {
        let summary = JobSummary {
            job: JobId(job),
            host,
            hosts: 2,
            processes: 1,
            threads: 1,
            program: "kv".into(),
            owner: "ann".parse().unwrap(),
            since: 0,
            pid: Some(1),
            ended: None,
        };
        let thread = |times: u64| ThreadStatistics {
            at_ns: times * 1_000_000_000,
            idle_ns: times * 250_000_000,
            requests_in: times * 12_345,
            requests_out: times * 7,
            bytes_in: times * 2048,
            bytes_out: 0,
            unserved: 3,
            unanswered: 4,
            fibers: 5,
        };
        let before = if before { vec![thread(at - 1)] } else { vec![] };
        JobStatistics { summary, age_ms: 10, now: vec![thread(at)], before }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_is_what_there_was_more_of_in_a_second() {
        let answers = [(name("b"), said(1, 1, 9, true)), (name("a"), said(1, 0, 9, false))];
        let rows = rows(&answers);
        let hosts: Vec<_> = rows.iter().map(|row| row.host.as_str()).collect();
        assert_eq!(hosts, ["a", "b"], "in the order of the job");
        assert_eq!(rows[0].rates, None, "there is nothing to compare with");
        let rates = rows[1].rates.unwrap();
        assert_eq!((rates.requests_in, rates.requests_out, rates.busy), (12_345.0, 7.0, 0.75));
        let cells = cells(&rows[1]);
        assert_eq!(cells[2..], ["b", "0", "12.3k", "7", "3+4", "5", "75%", "2KiB", "0B"]);
    }

    #[test]
    fn hosts_that_heard_of_a_job_at_different_times_stay_together() {
        let at = |host, job, number, since| {
            let mut said = said(job, number, 9, true);
            said.summary.since = since;
            (name(host), said)
        };
        let answers =
            [at("a", 2, 0, 101), at("b", 2, 1, 100), at("c", 1, 0, 101), at("d", 1, 1, 102)];
        let hosts: Vec<_> = rows(&answers).into_iter().map(|row| row.host).collect();
        assert_eq!(hosts, ["a", "b", "c", "d"], "the older job first");
    }

    #[test]
    fn one_that_stands_still_does_nothing_that_is_known() {
        let mut still = said(1, 0, 9, true);
        still.age_ms = STILL_MS;
        assert_eq!(rows(&[(name("a"), still)])[0].rates, None);
        let mut same = said(1, 0, 9, true);
        same.before = same.now.clone();
        assert_eq!(rows(&[(name("a"), same)])[0].rates, None);
        let mut backwards = said(1, 0, 9, true);
        backwards.now[0] = ThreadStatistics { at_ns: 10_000_000_000, ..Default::default() };
        let rates = rows(&[(name("a"), backwards)])[0].rates.unwrap();
        assert_eq!((rates.requests_in, rates.busy), (0.0, 1.0));
    }

    #[test]
    fn counts_are_short() {
        let short = [0.0, 7.4, 999.0, 999.6, 12_345.0, 123_456.0, 2.5e6].map(count);
        assert_eq!(short, ["0", "7", "999", "1.0k", "12.3k", "123k", "2.5M"]);
    }
}

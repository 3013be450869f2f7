//! The answers of daemons, as tables for people and as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use daemon_protocol::topology::Topology;
use daemon_protocol::{Ending, HostReport, JobSummary, Name};
use gossamer_job::JobId;
use serde::Serialize;

use crate::controller::verdict::{Outcome, Verdict};
use crate::escape;

/// A job, assembled from the answers of its hosts.
#[derive(Clone, Debug, Serialize)]
pub struct JobRow {
    /// The job.
    pub job: JobId,
    /// The name of its program.
    pub program: String,
    /// The member that started it.
    pub owner: Name,
    /// When, in seconds since 1970.
    pub since: u64,
    /// How many processes it has.
    pub hosts: u32,
    /// How many threads each has.
    pub threads: u32,
    /// Its processes as the hosts that answered report them, by name.
    pub on: BTreeMap<String, JobSummary>,
}

impl JobRow {
    fn state(&self) -> String {
        let running = self.on.values().filter(|on| on.ended.is_none()).count();
        let started = self.on.values().filter(|on| on.ended.is_none() && on.pid.is_some()).count();
        if running == 0 {
            // The same judgement as its controller's, from the hosts that answered.
            let outcomes = self
                .on
                .iter()
                .filter_map(|(name, on)| Some((name.clone(), Outcome::Ended(on.ended.clone()?))));
            let outcomes: Vec<_> = outcomes.collect();
            match Verdict::of(self.job, &outcomes, None) {
                Verdict { cause: Some((name, Outcome::Ended(Ending { how, .. }))), .. } => {
                    format!("ended, {name} {how}")
                }
                Verdict { ended_by: Some(by), .. } => format!("ended by {by}"),
                _ => "ended well".into(),
            }
        } else if started == 0 {
            "starting".into()
        } else {
            "runs".into()
        }
    }
}

/// Merges the jobs of all hosts, the oldest first.
pub fn jobs(answers: &[(Name, Vec<JobSummary>)]) -> Vec<JobRow> {
    let mut rows: BTreeMap<JobId, JobRow> = BTreeMap::new();
    for (name, summaries) in answers {
        for summary in summaries {
            let row = rows.entry(summary.job).or_insert_with(|| JobRow {
                job: summary.job,
                program: summary.program.clone(),
                owner: summary.owner.clone(),
                since: summary.since,
                hosts: summary.hosts,
                threads: summary.threads,
                on: BTreeMap::new(),
            });
            row.on.insert(summary.process().name(name), summary.clone());
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|row| row.since);
    rows
}

/// The jobs as a table; `now` is in seconds since 1970.
pub fn job_table(rows: &[JobRow], now: u64) -> String {
    let head = ["JOB", "PROGRAM", "OWNER", "AGE", "HOSTS", "THREADS", "STATE"];
    let rows = rows.iter().map(|row| {
        let on: Vec<_> = row.on.keys().map(String::as_str).collect();
        [
            row.job.to_string(),
            row.program.clone(),
            row.owner.to_string(),
            age(now.saturating_sub(row.since)),
            on.join(","),
            row.threads.to_string(),
            row.state(),
        ]
    });
    table(head, rows)
}

/// The hosts as a table.
pub fn host_table(reports: &[HostReport]) -> String {
    let head = [
        "HOST",
        "JOBS",
        "CORES",
        "CPUS",
        "NUMA",
        "MEMORY",
        "FREE",
        "CACHES",
        "RDMA",
        "QUEUE PAIRS",
        "PROCESSOR",
    ];
    let rows = reports.iter().map(|report| {
        let Topology { cores, cpus, nodes, memory_bytes, available_bytes, .. } = &report.topology;
        let caches = report.topology.caches.iter().map(|cache| {
            let kind = match cache.kind.as_str() {
                "Data" => "d",
                "Instruction" => "i",
                _ => "",
            };
            format!("L{}{kind} {}x{}", cache.level, cache.count, size(cache.bytes))
        });
        let ports = report.topology.rdma.iter();
        let ports = ports.map(|port| format!("{}/{} {}", port.device, port.port, port.state));
        let processes = report.over_rdma.iter();
        let pairs =
            processes.map(|on| format!("{} {}", on.process.name(&on.program), on.queue_pairs));
        [
            report.name.to_string(),
            report.running.to_string(),
            cores.to_string(),
            cpus.to_string(),
            nodes.len().to_string(),
            size(*memory_bytes),
            size(*available_bytes),
            some(caches.collect::<Vec<_>>().join(" ")),
            some(ports.collect::<Vec<_>>().join(" ")),
            some(pairs.collect::<Vec<_>>().join(", ")),
            report.topology.processor.clone(),
        ]
    });
    table(head, rows)
}

fn some(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let shown = |row: [String; N]| row.map(|cell| escape::name(&cell).into_owned());
    let rows = std::iter::once(head.map(str::to_owned)).chain(rows).map(shown);
    let rows: Vec<[String; N]> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let digits = usize::from(value < 10.0 && value.fract() != 0.0);
    format!("{value:.digits$}{}", UNITS[unit])
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use daemon_protocol::{EndedBy, Ending, How, OverRdma, Process, Role};

    use super::*;

    fn summary(job: u128, host: u32, ended: Option<How>) -> JobSummary {
        let ended =
            ended.map(|how| Ending { how, ended_by: None, panic: None, last_lines: vec![] });
        JobSummary {
            job: JobId(job),
            host,
            hosts: 2,
            processes: 1,
            threads: 4,
            program: "kv".into(),
            owner: "ann".parse().unwrap(),
            since: 1000 + job as u64,
            pid: Some(7),
            ended,
        }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_job_is_one_row_with_all_its_hosts() {
        let answers = [
            (name("a"), vec![summary(2, 0, None), summary(1, 0, Some(How::Exited(0)))]),
            (name("b"), vec![summary(2, 1, None), summary(3, 1, Some(How::Killed(9)))]),
        ];
        let rows = jobs(&answers);
        let table = job_table(&rows, 1062);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        assert!(lines[1].ends_with("ended well") && lines[1].contains("1m01s"), "{table}");
        assert!(lines[2].ends_with("a,b    4        runs"), "{table}");
        assert!(lines[3].ends_with("ended, b was killed by signal 9 (SIGKILL)"), "{table}");
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!(json[1]["on"]["b"]["host"], 1);
    }

    #[test]
    fn a_job_has_ended_as_its_controller_said() {
        let state = |on: [JobSummary; 2]| {
            let [a, b] = on;
            jobs(&[(name("a"), vec![a]), (name("b"), vec![b])])[0].state()
        };
        let on = |host, how| summary(1, host, Some(how));
        let state_of = |first, second| state([on(0, first), on(1, second)]);
        assert_eq!(
            state_of(How::Exited(1), How::Killed(9)),
            "ended, b was killed by signal 9 (SIGKILL)"
        );
        assert_eq!(state_of(How::Exited(1), How::Exited(3)), "ended, b exited with status 3");
        let ended = |host| {
            let mut summary = on(host, How::Killed(15));
            let ann = EndedBy::Member(name("ann"), Role::Admin);
            summary.ended.as_mut().unwrap().ended_by = Some(ann);
            summary
        };
        assert_eq!(state([ended(0), ended(1)]), "ended by ann (admin)");
    }

    #[test]
    fn hosts_show_the_queue_pairs_of_each_process() {
        let over_rdma = |job, number, queue_pairs| OverRdma {
            job: JobId(job),
            program: "kv".into(),
            process: Process { number, of: 2 },
            hosts: 4,
            threads: 3,
            queue_pairs,
        };
        let report = |name: &str, over_rdma| HostReport {
            name: name.parse().unwrap(),
            version: "1".into(),
            running: 1,
            processors: 2,
            topology: Topology { processor: "x86".into(), ..Topology::default() },
            over_rdma,
        };
        let reports =
            [report("a", vec![over_rdma(1, 0, 9), over_rdma(1, 1, 9)]), report("b", vec![])];
        let table = host_table(&reports);
        let lines: Vec<_> = table.lines().collect();
        let column = lines[0].find("QUEUE PAIRS").unwrap();
        assert!(lines[1][column..].starts_with("kv/0 9, kv/1 9  "), "{table}");
        assert!(lines[2][column..].starts_with("-  "), "{table}");
        let json = serde_json::to_value(&reports).unwrap();
        assert_eq!(json[0]["over_rdma"][1]["queue_pairs"], 9);
    }

    #[test]
    fn sizes_and_ages_are_short() {
        assert_eq!(
            (size(0), size(1536), size(32 << 30)),
            ("0B".into(), "1.5KiB".into(), "32GiB".into())
        );
        assert_eq!((age(5), age(3661), age(90_000)), ("5s".into(), "1h01m".into(), "1d01h".into()));
    }
}

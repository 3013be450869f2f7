//! The processes of jobs that a daemon lists: the running ones, and the last ones that have ended. A
//! job may have several on one host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use daemon_protocol::{EndedBy, Ending, JobStatistics, JobSummary, Name, OverRdma, RunRequest};
use gossamer_job::JobId;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use crate::host::delivery::{Deliveries, Delivery};
use crate::host::log::Log;
use crate::host::samples::Samples;

/// Processes that a daemon runs at a time.
const RUNNING: usize = 256;
/// Ended processes that a daemon remembers.
const REMEMBERED: usize = 64;

/// A job is not admitted.
#[derive(Debug, Error)]
pub(crate) enum NotAdmitted {
    #[error("job {0} is known on this host already: a job is run once")]
    Known(JobId),
    #[error("{RUNNING} processes of jobs run on this host, the limit: try again later")]
    Full,
    #[error("the daemon is stopping")]
    Stopping,
}

/// A process of a job.
#[derive(Debug)]
pub(crate) struct Job {
    summary: Mutex<JobSummary>,
    pub(crate) log: Log,
    pub(crate) samples: Samples,
    /// Requests for its end.
    end_requests: watch::Sender<Option<EndedBy>>,
    deliveries: Mutex<Deliveries>,
}

impl Job {
    pub(crate) fn summary(&self) -> JobSummary {
        self.summary.lock().clone()
    }

    /// The statistics of its threads.
    pub(crate) fn statistics(&self) -> JobStatistics {
        self.samples.of(self.summary())
    }

    pub(crate) fn has_started(&self, pid: u32) {
        self.summary.lock().pid = Some(pid);
    }

    pub(crate) fn has_ended(&self, ending: Ending) {
        self.summary.lock().ended = Some(ending);
        self.log.end();
    }

    /// Whether the process takes packages.
    pub(crate) fn deliveries(&self) -> Deliveries {
        self.deliveries.lock().clone()
    }

    pub(crate) fn set_deliveries(&self, deliveries: mpsc::Sender<Delivery>) {
        *self.deliveries.lock() = Deliveries::Open(deliveries);
    }

    /// From now on it takes no packages, for this reason.
    pub(crate) fn end_deliveries(&self, reason: &'static str) {
        *self.deliveries.lock() = Deliveries::Ended(reason);
    }

    pub(crate) fn runs(&self) -> bool {
        self.summary.lock().ended.is_none()
    }

    /// Receives who requests the end of the job.
    pub(crate) fn end_requests(&self) -> watch::Receiver<Option<EndedBy>> {
        self.end_requests.subscribe()
    }
}

/// The jobs that a daemon knows.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<Table>);

/// A job, and which of its processes.
type Key = (JobId, u32);

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<Key, Arc<Job>>,
    /// Those that have ended, the oldest first.
    ended: VecDeque<Key>,
    is_closed: bool,
}

impl Jobs {
    /// Adds a process of a job.
    ///
    /// # Errors
    /// If the job is known, or the daemon has too many.
    pub(crate) fn admit(
        self: &Arc<Self>,
        request: &RunRequest,
        owner: &Name,
    ) -> Result<Admitted, NotAdmitted> {
        let mut table = self.0.lock();
        if table.is_closed {
            return Err(NotAdmitted::Stopping);
        }
        let id = (request.job, request.host);
        if table.jobs.contains_key(&id) {
            return Err(NotAdmitted::Known(request.job));
        }
        if table.jobs.values().filter(|job| job.runs()).count() >= RUNNING {
            return Err(NotAdmitted::Full);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let summary = JobSummary {
            job: request.job,
            host: request.host,
            hosts: request.hosts,
            processes: request.processes,
            threads: request.threads,
            program: request.program.name.clone(),
            owner: owner.clone(),
            since: now.as_secs(),
            pid: None,
            ended: None,
        };
        let job = Arc::new(Job {
            summary: Mutex::new(summary),
            log: Log::default(),
            samples: Samples::default(),
            end_requests: watch::Sender::new(None),
            deliveries: Mutex::default(),
        });
        table.jobs.insert(id, job.clone());
        Ok(Admitted { jobs: self.clone(), id, job })
    }

    /// The processes of a job.
    pub(crate) fn of(&self, job: JobId) -> Vec<Arc<Job>> {
        let table = self.0.lock();
        table.jobs.range((job, 0)..=(job, u32::MAX)).map(|(_, job)| job.clone()).collect()
    }

    pub(crate) fn summaries(&self) -> Vec<JobSummary> {
        self.0.lock().jobs.values().map(|job| job.summary()).collect()
    }

    /// The processes that have not ended.
    pub(crate) fn that_run(&self) -> Vec<Arc<Job>> {
        self.0.lock().jobs.values().filter(|job| job.runs()).cloned().collect()
    }

    /// The use of RDMA by those running processes that have reported it.
    pub(crate) fn over_rdma(&self) -> Vec<OverRdma> {
        let report = |job: Arc<Job>| {
            let (queue_pairs, summary) = (job.samples.queue_pairs(), job.summary());
            let process = summary.process();
            let JobSummary { job, program, hosts, threads, .. } = summary;
            OverRdma { job, program, process, hosts, threads, queue_pairs }
        };
        self.that_run().into_iter().map(report).filter(|report| report.queue_pairs > 0).collect()
    }

    /// How many jobs have processes that have not ended.
    pub(crate) fn running(&self) -> usize {
        let table = self.0.lock();
        let running = table.jobs.iter().filter(|(_, job)| job.runs());
        running.map(|((job, _), _)| *job).collect::<BTreeSet<_>>().len()
    }

    /// The processes that have a session: running ones, and ended ones whose last output is still being
    /// sent or whose files are still being removed.
    fn with_session(&self) -> usize {
        let table = self.0.lock();
        table.jobs.len() - table.ended.len()
    }

    /// Requests the end of a job; false if no process of it runs.
    pub(crate) fn kill(&self, job: JobId, by: &EndedBy) -> bool {
        let running: Vec<_> = self.of(job).into_iter().filter(|job| job.runs()).collect();
        for job in &running {
            job.end_requests.send_replace(Some(by.clone()));
        }
        !running.is_empty()
    }

    /// Requests the end of all jobs, admits no more, and waits for at most `timeout` until they end.
    pub(crate) async fn close(&self, by: &EndedBy, timeout: Duration) {
        let jobs: Vec<_> = {
            let mut table = self.0.lock();
            table.is_closed = true;
            table.jobs.keys().map(|(job, _)| *job).collect()
        };
        for job in jobs {
            self.kill(job, by);
        }
        let deadline = Instant::now() + timeout;
        while self.with_session() > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A listed process. When this is dropped, the process counts as ended or, if it was never started, is
/// removed from the list.
#[derive(Debug)]
pub(crate) struct Admitted {
    jobs: Arc<Jobs>,
    id: Key,
    pub(crate) job: Arc<Job>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut table = self.jobs.0.lock();
        if self.job.runs() {
            table.jobs.remove(&self.id);
            self.job.log.end();
            return;
        }
        table.ended.push_back(self.id);
        if table.ended.len() > REMEMBERED {
            let oldest = table.ended.pop_front();
            oldest.map(|oldest| table.jobs.remove(&oldest));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use daemon_protocol::{How, Program};

    use super::*;

    /// A request for one process.
    pub(crate) fn request(job: u128) -> RunRequest {
        RunRequest {
            job: JobId(job),
            host: 0,
            hosts: 1,
            processes: 1,
            threads: 1,
            program: Program { digest: [0; 32], bytes: 0, name: "p".into() },
            arguments: vec![],
            environment: vec![],
            directory: None,
            input: false,
            limits: Default::default(),
        }
    }

    fn ending() -> Ending {
        Ending { how: How::Exited(0), ended_by: None, panic: None, last_lines: vec![] }
    }

    #[test]
    fn a_job_is_run_once() {
        let jobs = Arc::new(Jobs::default());
        let owner = "admin".parse().unwrap();
        let admitted = jobs.admit(&request(1), &owner).unwrap();
        assert!(matches!(jobs.admit(&request(1), &owner), Err(NotAdmitted::Known(_))));
        admitted.job.has_ended(ending());
        drop(admitted);
        assert!(matches!(jobs.admit(&request(1), &owner), Err(NotAdmitted::Known(_))));
        assert!(!jobs.kill(JobId(1), &EndedBy::Controller), "it has ended");
        assert_eq!(jobs.running(), 0);
    }

    #[test]
    fn a_job_may_have_several_processes_and_ends_with_all_of_them() {
        let jobs = Arc::new(Jobs::default());
        let owner = "admin".parse().unwrap();
        let process = |host| RunRequest { host, hosts: 2, processes: 2, ..request(1) };
        let one = jobs.admit(&process(0), &owner).unwrap();
        let other = jobs.admit(&process(1), &owner).unwrap();
        let _another_job = jobs.admit(&request(2), &owner).unwrap();
        assert!(matches!(jobs.admit(&process(1), &owner), Err(NotAdmitted::Known(_))));
        assert_eq!((jobs.running(), jobs.of(JobId(1)).len(), jobs.that_run().len()), (2, 2, 3));
        one.job.has_ended(ending());
        assert!(jobs.kill(JobId(1), &EndedBy::Controller), "one of its processes runs");
        assert_eq!(other.job.end_requests().borrow().as_ref(), Some(&EndedBy::Controller));
        other.job.has_ended(ending());
        assert_eq!((jobs.running(), jobs.kill(JobId(1), &EndedBy::Controller)), (1, false));
    }

    #[test]
    fn what_was_never_started_is_forgotten_and_the_oldest_too() {
        let jobs = Arc::new(Jobs::default());
        let owner = "admin".parse().unwrap();
        drop(jobs.admit(&request(1), &owner).unwrap());
        assert_eq!(jobs.summaries().len(), 0);
        for job in 0..2 * REMEMBERED as u128 {
            let admitted = jobs.admit(&request(job), &owner).unwrap();
            admitted.job.has_ended(ending());
        }
        assert_eq!(jobs.summaries().len(), REMEMBERED);
    }

    #[test]
    fn there_is_a_limit() {
        let jobs = Arc::new(Jobs::default());
        let owner = "admin".parse().unwrap();
        let admit = |job| jobs.admit(&request(job), &owner);
        let _running: Vec<_> = (0..RUNNING as u128).map(|job| admit(job).unwrap()).collect();
        assert!(matches!(admit(RUNNING as u128), Err(NotAdmitted::Full)));
    }
}

//! Receives the reports of the processes of jobs. The daemon trusts nothing in them, keeps the last
//! two of each process, and spends a bounded time on each process, whatever that sends.

use std::sync::Arc;
use std::time::Duration;

use gossamer_job::{LARGEST_REPORT, ProcessStatistics, REPORT_INTERVAL};
use tokio::net::UnixDatagram;
use tokio::time::sleep;

use crate::host::jobs::Job;

/// Reports of a process that follow each other faster than this are skipped.
const PAUSE: Duration = REPORT_INTERVAL.checked_div(4).expect("four is not zero");

/// Receives the reports of a process until this future is dropped.
pub(crate) async fn take(socket: UnixDatagram, job: Arc<Job>) {
    let mut buffer = vec![0; LARGEST_REPORT];
    // Fails only when the socket cannot be used any more.
    while let Ok(length) = socket.recv(&mut buffer).await {
        if let Some(report) = ProcessStatistics::from_json(&buffer[..length]) {
            job.samples.add(report);
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use daemon_protocol::{Program, RunRequest};
    use gossamer_job::{JobId, ThreadStatistics};

    use super::*;
    use crate::host::jobs::Jobs;

    fn report(requests_in: u64) -> ProcessStatistics {
        let thread = ThreadStatistics { requests_in, ..ThreadStatistics::default() };
        ProcessStatistics { threads: vec![thread], queue_pairs: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_two_reports_are_kept_and_garbage_is_not() {
        let program = Program { digest: [0; 32], bytes: 0, name: "p".into() };
        let request = RunRequest {
            job: JobId(1),
            host: 0,
            hosts: 1,
            processes: 1,
            threads: 1,
            program,
            arguments: vec![],
            environment: vec![],
            directory: None,
            input: false,
            limits: Default::default(),
        };
        let jobs = Arc::new(Jobs::default());
        let admitted = jobs.admit(&request, &"ann".parse().unwrap()).unwrap();
        let (theirs, ours) = UnixDatagram::pair().unwrap();
        let taking = tokio::spawn(take(ours, admitted.job.clone()));
        let reported = || jobs.that_run()[0].statistics();
        assert_eq!((reported().now, reported().before), (vec![], vec![]));

        let good = [1, 2, 3].map(|count| report(count).to_json().into_bytes());
        let garbage = [vec![], b"{}".to_vec(), b"[".to_vec(), vec![0xff; LARGEST_REPORT + 1]];
        for datagram in garbage.iter().chain(&good) {
            theirs.send(datagram).await.unwrap();
        }
        while reported().now != report(3).threads {
            sleep(PAUSE).await;
        }
        assert_eq!(reported().before, report(2).threads);
        taking.abort();
    }
}

//! What a process of a job reports to its daemon about once a second: what each of its runtime
//! threads has done, in one datagram.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use primitive::limits::THREADS_PER_HOST;
use serde::{Deserialize, Serialize};

use crate::environment::{JobError, take_descriptor};

/// The environment variable with the number of the descriptor of the socket for reports.
pub const STATISTICS_FD: &str = "GOSSAMER_STATISTICS_FD";

/// How often a process reports.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of the largest report: every thread a host can have, each number with all its digits.
pub const LARGEST_REPORT: usize = THREADS_PER_HOST * 512;

/// What a runtime thread has done since it started, and what it has to do.
///
/// Calls on a thread's own properties do not count as requests. Requests that wait to be sent count
/// among those without a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatistics {
    /// When this was counted, in nanoseconds from the start of the rack.
    pub at_ns: u64,
    /// Nanoseconds of that time in which it had nothing to do.
    pub idle_ns: u64,
    /// Requests of other threads that it has served.
    pub requests_in: u64,
    /// Requests that it has sent to other threads.
    pub requests_out: u64,
    /// Bytes of requests and replies that have come from other threads.
    pub bytes_in: u64,
    /// Bytes of requests and replies that have gone to other threads.
    pub bytes_out: u64,
    /// Requests that have come and are not served yet.
    pub unserved: u64,
    /// Requests that it has made and that have no reply yet.
    pub unanswered: u64,
    /// Fibers that have been started and have not ended.
    pub fibers: u64,
}

/// What a process reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatistics {
    /// Its threads, by number.
    pub threads: Vec<ThreadStatistics>,
    /// How many queue pairs it has on RDMA devices: for each of its threads one to every other
    /// process of the rack, and none if the rack is not joined by RDMA.
    pub queue_pairs: u32,
}

impl ProcessStatistics {
    /// Parses a report; `None` if it is malformed or has too many threads.
    ///
    /// ```
    /// use gossamer_job::ProcessStatistics;
    ///
    /// let report = ProcessStatistics::default();
    /// assert_eq!(ProcessStatistics::from_json(report.to_json().as_bytes()), Some(report));
    /// assert_eq!(ProcessStatistics::from_json(b"garbage"), None);
    /// ```
    pub fn from_json(json: &[u8]) -> Option<Self> {
        let report: Self = serde_json::from_slice(json).ok()?;
        (report.threads.len() <= THREADS_PER_HOST).then_some(report)
    }

    /// The report as [`from_json`](Self::from_json) reads it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers can always be serialised")
    }
}

/// The socket to which this process reports; `None` if no daemon started it.
///
/// # Errors
/// [`JobError`], if the environment names a descriptor that is not a datagram socket.
pub fn statistics_socket() -> Result<Option<UnixDatagram>, JobError> {
    let Some(fd) = take_descriptor(STATISTICS_FD)? else { return Ok(None) };
    let failed = |error| JobError::Read { variable: STATISTICS_FD, error };
    let socket = UnixDatagram::from(fd);
    socket.local_addr().and_then(|_| socket.set_nonblocking(true)).map_err(failed)?;
    Ok(Some(socket))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_report_has_room() {
        let most = u64::MAX;
        let thread = ThreadStatistics {
            at_ns: most,
            idle_ns: most,
            requests_in: most,
            requests_out: most,
            bytes_in: most,
            bytes_out: most,
            unserved: most,
            unanswered: most,
            fibers: most,
        };
        let threads = vec![thread; THREADS_PER_HOST];
        let mut report = ProcessStatistics { threads, queue_pairs: u32::MAX };
        let json = report.to_json();
        assert!(json.len() <= LARGEST_REPORT, "{}", json.len());
        assert_eq!(ProcessStatistics::from_json(json.as_bytes()).as_ref(), Some(&report));
        report.threads.push(thread);
        assert_eq!(ProcessStatistics::from_json(report.to_json().as_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = ProcessStatistics::from_json(&bytes);
        }
    }
}

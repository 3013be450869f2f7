//! What the threads of a process of a job do, told to its daemon about once a second.
//!
//! Nothing on the way of a request knows of it. The threads count by the batch anyhow; when the
//! reporter asks, by a word that every thread looks at in each round, each puts its counts on the
//! board, and the reporter sends the board to the daemon in one datagram. Nobody is woken for it: a
//! thread that sleeps looks at the word at least five times a second, and one that does not come
//! round is seen by its standing still. A daemon that does not read costs datagrams, not time.

use crate::{
    job::{self, JobError},
    shared::Shared,
};
use parking_lot::Mutex;
use primitive::limits::THREADS_PER_HOST;
use serde::{Deserialize, Serialize};
use std::{
    io,
    os::unix::net::UnixDatagram,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// The environment variable with the number of the descriptor of the socket that reports go to.
pub const STATISTICS_FD: &str = "GOSSAMER_STATISTICS_FD";

/// How often a process reports.
pub const EVERY: Duration = Duration::from_secs(1);
/// How long the threads have to put their counts on the board: longer than any of them sleeps.
const TO_ANSWER: Duration = Duration::from_millis(250);

/// Bytes of the largest report: so many threads, each with so many digits.
pub const LARGEST_REPORT: usize = THREADS_PER_HOST * 512;

/// What a runtime thread has done since it began, and how it stands.
///
/// What a thread does on its own properties is no request. Requests without a reply are those that
/// wait to be sent, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatistics {
    /// When that was, in nanoseconds from the start of the rack.
    pub at_ns: u64,
    /// For how much of this time it had nothing to do, in nanoseconds.
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
    /// Reads a report; `None` if it is none.
    ///
    /// ```
    /// use gossamer::statistics::ProcessStatistics;
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
        serde_json::to_string(self).expect("numbers can always be written")
    }
}

/// Where the threads of a process put what they have done when they are asked.
#[derive(Debug)]
pub(crate) struct Board {
    began: Instant,
    threads: Mutex<Vec<ThreadStatistics>>,
}

impl Board {
    pub(crate) fn new(threads: u32) -> Self {
        let threads = vec![ThreadStatistics::default(); threads as usize];
        Self { began: Instant::now(), threads: Mutex::new(threads) }
    }

    /// Puts up what `thread` has done until now.
    pub(crate) fn put(&self, thread: u32, done: ThreadStatistics) {
        let at_ns = nanoseconds(self.began.elapsed());
        self.threads.lock()[thread as usize] = ThreadStatistics { at_ns, ..done };
    }

    fn read(&self) -> Vec<ThreadStatistics> {
        self.threads.lock().clone()
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// The socket to which this process reports, if its daemon has handed it one.
pub(crate) fn socket_from_environment() -> Result<Option<UnixDatagram>, JobError> {
    let Some(copy) = job::take_descriptor(STATISTICS_FD)? else { return Ok(None) };
    let failed = |error| JobError::Read { variable: STATISTICS_FD, error };
    let socket = UnixDatagram::from(copy);
    socket.local_addr().and_then(|_| socket.set_nonblocking(true)).map_err(failed)?;
    Ok(Some(socket))
}

/// A thread that reports until it is dropped.
pub(crate) struct Reporter {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reporter {
    /// Reports what the threads of `shared` do to `socket`.
    ///
    /// # Errors
    /// What the system says, when there can be no thread.
    pub(crate) fn start(shared: Arc<Shared>, socket: UnixDatagram) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let report = move || {
            let goes_on = |time| stopped.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout);
            loop {
                shared.ask_for_statistics();
                if !goes_on(TO_ANSWER) {
                    return;
                }
                let (threads, queue_pairs) = (shared.board.read(), shared.transport.queue_pairs());
                let report = ProcessStatistics { threads, queue_pairs };
                // A daemon that is gone, or behind, does without.
                let _ = socket.send(report.to_json().as_bytes());
                if !goes_on(EVERY - TO_ANSWER) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("gossamer-report".into()).spawn(report)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostId, Rack, ThreadId, start::Joined};
    use proptest::prelude::*;

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

    #[test]
    fn a_rack_reports_what_its_threads_do() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let transport = transport_shm::ShmTransport::threads(2).expect("a rack");
        let joined = Joined { transport, reports: Some(theirs) };
        let (has_sent, sent) = mpsc::channel();
        let (has_seen, seen) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; LARGEST_REPORT];
            sent.recv().unwrap();
            let mut report = ProcessStatistics::default();
            // One that was asked for before does not count yet, nor one that a thread was late for.
            while report.threads.first().is_none_or(|client| client.requests_out < 1000)
                || report.threads[1].idle_ns == 0
            {
                let length = ours.recv(&mut buffer).unwrap();
                report = ProcessStatistics::from_json(&buffer[..length]).unwrap();
            }
            has_seen.send(()).unwrap();
            report
        });
        let main = move || {
            let trustee = ThreadId { host: HostId(0), thread: 1 };
            let counter = crate::trustee(trustee).entrust(0u64);
            (0..1000).for_each(|_| counter.apply(|c| *c += 1));
            has_sent.send(()).unwrap();
            while seen.try_recv().is_err() {
                crate::sleep(Duration::from_millis(5));
            }
        };
        assert!(matches!(Rack::new().threads(2).serve(joined, Some(main)), Ok(Some(Ok(())))));
        let report = reader.join().unwrap();
        let [client, trustee] = report.threads[..] else { panic!("{report:?}") };
        assert!(client.requests_out >= 1000 && trustee.requests_in >= 1000, "{report:?}");
        assert!(client.fibers >= 1, "`main` is a fiber: {report:?}");
        assert!(trustee.idle_ns > 0 && trustee.idle_ns <= trustee.at_ns, "{report:?}");
        assert!(trustee.bytes_in >= 8000 && client.bytes_in >= 8000, "{report:?}");
    }
}

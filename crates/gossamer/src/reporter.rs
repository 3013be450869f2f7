//! [`Reporter`]: reports to the daemon about once a second what the threads of this process do.
//!
//! The path of a request does not change: threads count per batch anyway. The reporter requests the
//! counts through a word that every thread checks in each round; each thread then publishes its
//! counts on the board, and the reporter sends the board to the daemon in one datagram. It wakes no
//! thread: a sleeping thread checks the word at least five times a second, and counts that do not
//! change show a thread that is stuck. A daemon that does not read loses datagrams, and no thread
//! waits for it.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use gossamer_job::{ProcessStatistics, REPORT_INTERVAL};

use crate::shared::Shared;

/// How long the threads have to publish their counts: longer than any of them sleeps.
const ANSWER_TIME: Duration = Duration::from_millis(250);

/// A thread that reports until it is dropped.
pub(crate) struct Reporter {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reporter {
    /// Reports the counts of the threads of `shared` to `socket`.
    ///
    /// # Errors
    /// The error of the system, if it starts no thread.
    pub(crate) fn start(shared: Arc<Shared>, socket: UnixDatagram) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let report = move || {
            let goes_on = |time| stopped.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout);
            loop {
                shared.request_statistics();
                if !goes_on(ANSWER_TIME) {
                    return;
                }
                let (threads, queue_pairs) = (shared.board.read(), shared.transport.queue_pairs());
                let report = ProcessStatistics { threads, queue_pairs };
                // A daemon that has ended, or lags, misses this report.
                let _ = socket.send(report.to_json().as_bytes());
                if !goes_on(REPORT_INTERVAL - ANSWER_TIME) {
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

#[cfg(all(test, feature = "shm"))]
mod tests {
    use gossamer_job::LARGEST_REPORT;

    use super::*;
    use crate::run::Main;
    use crate::start::Joined;
    use crate::{HostId, Rack, ThreadId};

    #[test]
    fn a_rack_reports_what_its_threads_do() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let transport = transport_shm::ShmTransport::threads(2).expect("a rack");
        let joined = Joined::from(transport as std::sync::Arc<dyn transport_api::Transport>);
        let joined = Joined { reports: Some(theirs), ..joined };
        let (has_sent, sent) = mpsc::channel();
        let (has_seen, seen) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; LARGEST_REPORT];
            sent.recv().unwrap();
            let mut report = ProcessStatistics::default();
            // Skips reports from before the requests, and reports that lack the counts of a late
            // thread.
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
        let (main, outcome) = Main::new(main);
        Rack::new().threads(2).serve(joined, Some(main)).unwrap();
        assert_eq!(outcome.or_unwind(), Some(()));
        let report = reader.join().unwrap();
        let [client, trustee] = report.threads[..] else { panic!("{report:?}") };
        assert!(client.requests_out >= 1000 && trustee.requests_in >= 1000, "{report:?}");
        assert!(client.fibers >= 1, "`main` is a fiber: {report:?}");
        assert!(trustee.idle_ns > 0 && trustee.idle_ns <= trustee.at_ns, "{report:?}");
        assert!(trustee.bytes_in >= 8000 && client.bytes_in >= 8000, "{report:?}");
    }
}

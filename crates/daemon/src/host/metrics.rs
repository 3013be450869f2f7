//! The counters of a daemon, and its page `/metrics` in the text format of Prometheus.

use std::collections::VecDeque;
use std::fmt::{Display, Write as _};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use daemon_protocol::{JobStatistics, Name, Process};
use gossamer_job::ThreadStatistics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::host::jobs::Jobs;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the largest request.
const LARGEST: usize = 8 << 10;
/// Readers that are served at a time.
const AT_A_TIME: usize = 16;

/// The counters of a daemon, from its start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections that were accepted.
    pub(crate) connections: AtomicU64,
    /// Connections without a valid request: no certificate, garbage, too slow.
    pub(crate) strangers: AtomicU64,
    /// Requests that the member's role does not allow.
    pub(crate) forbidden: AtomicU64,
    /// Requests that were served.
    pub(crate) requests: AtomicU64,
    /// Processes that were started.
    pub(crate) started: AtomicU64,
    /// Processes that failed without a request to end.
    pub(crate) failed: AtomicU64,
    /// Bytes of output of processes.
    pub(crate) output_bytes: AtomicU64,
    /// Bytes of programs that were received.
    pub(crate) program_bytes: AtomicU64,
}

/// One metric, with its value for each set of labels.
struct Metric<'a> {
    page: &'a mut String,
    name: &'static str,
}

impl<'a> Metric<'a> {
    fn new(page: &'a mut String, kind: &str, name: &'static str, help: &str) -> Self {
        let _ = writeln!(page, "# HELP gossamer_{name} {help}\n# TYPE gossamer_{name} {kind}");
        Self { page, name }
    }

    fn is(&mut self, labels: impl Display, value: impl Display) {
        let _ = writeln!(self.page, "gossamer_{}{labels} {value}", self.name);
    }
}

/// A metric of each thread: name, help text and value. The name of a counter ends in `_total`.
type OfThread = (&'static str, &'static str, fn(&ThreadStatistics) -> f64);

const OF_THREADS: [OfThread; 9] = [
    ("thread_requests_in_total", "Requests of others served.", |t| t.requests_in as f64),
    ("thread_requests_out_total", "Requests sent to others.", |t| t.requests_out as f64),
    ("thread_bytes_in_total", "Bytes that came from others.", |t| t.bytes_in as f64),
    ("thread_bytes_out_total", "Bytes that went to others.", |t| t.bytes_out as f64),
    ("thread_seconds_total", "Time since the rack began.", |t| t.at_ns as f64 / 1e9),
    ("thread_idle_seconds_total", "Time without work.", |t| t.idle_ns as f64 / 1e9),
    ("thread_unserved_requests", "Requests that wait to be served.", |t| t.unserved as f64),
    ("thread_unanswered_requests", "Requests without a reply.", |t| t.unanswered as f64),
    ("thread_fibers", "Fibers that have not ended.", |t| t.fibers as f64),
];

impl Counts {
    /// The page of the daemon of `host`.
    fn page(&self, host: &Name, jobs: &Jobs) -> String {
        let mut page = String::new();
        let running: Vec<_> = jobs.that_run().iter().map(|job| job.statistics()).collect();
        let mut metric = |kind, name, help, value: u64| {
            Metric::new(&mut page, kind, name, help).is("", value);
        };
        metric("gauge", "jobs_running", "Jobs that run on this host.", jobs.running() as u64);
        for (name, help, count) in [
            ("connections_total", "Connections accepted.", &self.connections),
            ("strangers_total", "Connections that came to no request.", &self.strangers),
            ("forbidden_total", "Requests refused for the member's role.", &self.forbidden),
            ("requests_total", "Requests served.", &self.requests),
            ("processes_started_total", "Processes started.", &self.started),
            ("processes_failed_total", "Processes that ended badly.", &self.failed),
            ("output_bytes_total", "Bytes of output of processes.", &self.output_bytes),
            ("program_bytes_total", "Bytes of programs received.", &self.program_bytes),
        ] {
            metric("counter", name, help, count.load(Relaxed));
        }
        let mut processes =
            Metric::new(&mut page, "gauge", "process_running", "Processes that run.");
        for job in running.iter().filter(|job| job.summary.pid.is_some()) {
            let (which, program) = (which(job, host), escaped(&job.summary.program));
            processes.is(format!("{{{which},program=\"{program}\"}}"), 1);
        }
        for (name, help, value) in OF_THREADS {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let mut metric = Metric::new(&mut page, kind, name, help);
            for job in &running {
                let which = which(job, host);
                for (number, thread) in job.now.iter().enumerate() {
                    metric.is(format!("{{{which},thread=\"{number}\"}}"), value(thread));
                }
            }
        }
        page
    }
}

/// The labels that identify a process.
fn which(job: &JobStatistics, host: &Name) -> String {
    let (id, process) = (job.summary.job, job.summary.process());
    let labels = format!("job=\"{id}\",host=\"{host}\"");
    match process {
        Process { of: ..=1, .. } => labels,
        Process { number, .. } => format!("{labels},process=\"{number}\""),
    }
}

/// Text inside the quotes of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Serves the page of the daemon of `host` until it is dropped. A new reader replaces the oldest, so
/// that slow readers do not block others.
pub(crate) async fn serve(listener: TcpListener, host: Name, counts: Arc<Counts>, jobs: Arc<Jobs>) {
    let mut readers: VecDeque<AbortHandle> = VecDeque::with_capacity(AT_A_TIME);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        readers.retain(|reader| !reader.is_finished());
        if readers.len() >= AT_A_TIME
            && let Some(oldest) = readers.pop_front()
        {
            oldest.abort();
        }
        let (host, counts, jobs) = (host.clone(), counts.clone(), jobs.clone());
        let reader = tokio::spawn(async move {
            // A reader that fails or is too slow is dropped.
            let _ = timeout(TIMEOUT, answer(stream, || counts.page(&host, &jobs))).await;
        });
        readers.push_back(reader.abort_handle());
    }
}

async fn answer(mut stream: TcpStream, page: impl FnOnce() -> String) -> io::Result<()> {
    let mut request = Vec::new();
    let mut searched: usize = 0;
    while !request[searched.saturating_sub(3)..].windows(4).any(|end| end == b"\r\n\r\n") {
        searched = request.len();
        if searched > LARGEST || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let is_page = request.starts_with(b"GET /metrics ");
    let (status, body) = if is_page {
        ("200 OK", page())
    } else {
        ("404 Not Found", "there is only /metrics\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use daemon_protocol::{Program, RunRequest};
    use gossamer_job::{JobId, ProcessStatistics};

    use super::*;

    /// A page that is served, with one job.
    async fn server() -> (SocketAddr, Arc<Jobs>, crate::host::jobs::Admitted) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, jobs) = (Arc::new(Counts::default()), Arc::new(Jobs::default()));
        counts.started.store(7, Relaxed);
        let request = RunRequest {
            job: JobId(0xabc),
            host: 1,
            hosts: 2,
            processes: 1,
            threads: 2,
            program: Program { digest: [0; 32], bytes: 0, name: "a\"b\\c\nd".into() },
            arguments: vec![],
            environment: vec![],
            directory: None,
            input: false,
            limits: Default::default(),
        };
        let admitted = jobs.admit(&request, &"ann".parse().unwrap()).unwrap();
        admitted.job.has_started(17);
        tokio::spawn(serve(listener, "h".parse().unwrap(), counts, jobs.clone()));
        (address, jobs, admitted)
    }

    async fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close before all of this is sent.
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[tokio::test]
    async fn the_page_is_served_and_nothing_else() {
        let (address, ..) = server().await;
        let page = ask(address, GET).await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("\ngossamer_processes_started_total 7\n"), "{page}");
        assert!(page.contains("# TYPE gossamer_jobs_running gauge\n"), "{page}");
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn jobs_and_their_threads_are_named_by_labels() {
        let (address, _, admitted) = server().await;
        let thread = |n| ThreadStatistics {
            requests_in: n,
            at_ns: 2_500_000_000,
            fibers: 3,
            ..ThreadStatistics::default()
        };
        let report = ProcessStatistics { threads: vec![thread(5), thread(6)], queue_pairs: 0 };
        admitted.job.samples.add(report);
        let page = ask(address, GET).await;
        let job = JobId(0xabc);
        for line in [
            format!("process_running{{job=\"{job}\",host=\"h\",program=\"a\\\"b\\\\c\\nd\"}} 1"),
            format!("thread_requests_in_total{{job=\"{job}\",host=\"h\",thread=\"1\"}} 6"),
            format!("thread_seconds_total{{job=\"{job}\",host=\"h\",thread=\"0\"}} 2.5"),
            format!("thread_fibers{{job=\"{job}\",host=\"h\",thread=\"0\"}} 3"),
            "jobs_running 1".to_owned(),
        ] {
            assert!(page.contains(&format!("\ngossamer_{line}\n")), "{line} is not in {page}");
        }
        let (_, body) = page.split_once("\r\n\r\n").unwrap();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        admitted.job.has_ended(daemon_protocol::Ending {
            how: daemon_protocol::How::Exited(0),
            ended_by: None,
            panic: None,
            last_lines: vec![],
        });
        let page = ask(address, GET).await;
        assert!(!page.contains("thread=") && page.contains("jobs_running 0"), "{page}");
    }

    #[tokio::test]
    async fn garbage_endless_and_slow_readers_block_no_other() {
        let (address, ..) = server().await;
        for garbage in [&[0xff; 3 * LARGEST][..], b"\r\n\r\n", b"", b"GET /metrics"] {
            let answer = ask(address, garbage).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 404"), "{answer}");
        }
        let mut slow = Vec::new();
        for _ in 0..3 * AT_A_TIME {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"G").await.unwrap();
            slow.push(stream);
        }
        assert!(ask(address, GET).await.starts_with("HTTP/1.1 200"));
        let mut oldest = Vec::new();
        let cut_off = slow[0].read_to_end(&mut oldest);
        assert!(matches!(timeout(TIMEOUT, cut_off).await, Ok(Ok(0) | Err(_))));
    }
}

//! What a daemon counts, and its page `/metrics` in the text format of Prometheus.

use crate::jobs::Jobs;
use std::{
    fmt::Write as _,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the largest request.
const LARGEST: usize = 8 << 10;
/// Requests that are answered at a time.
const AT_A_TIME: usize = 16;

/// What a daemon counts, from its start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections that were accepted.
    pub(crate) connections: AtomicU64,
    /// Connections that came to no request: no certificate, garbage, too slow.
    pub(crate) strangers: AtomicU64,
    /// Requests of members who may not ask them.
    pub(crate) forbidden: AtomicU64,
    /// Requests that were served.
    pub(crate) requests: AtomicU64,
    /// Processes that were started.
    pub(crate) started: AtomicU64,
    /// Processes that ended badly by themselves.
    pub(crate) failed: AtomicU64,
    /// Bytes that processes have said.
    pub(crate) output_bytes: AtomicU64,
    /// Bytes of programs that were received.
    pub(crate) program_bytes: AtomicU64,
}

impl Counts {
    /// The page.
    fn page(&self, jobs: &Jobs) -> String {
        let mut page = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(
                page,
                "# HELP gossamer_{name} {help}\n# TYPE gossamer_{name} {kind}\n\
                 gossamer_{name} {value}"
            );
        };
        metric("jobs_running", "gauge", "Jobs that run on this host.", jobs.running() as u64);
        for (name, help, count) in [
            ("connections_total", "Connections accepted.", &self.connections),
            ("strangers_total", "Connections that came to no request.", &self.strangers),
            ("forbidden_total", "Requests refused for the member's role.", &self.forbidden),
            ("requests_total", "Requests served.", &self.requests),
            ("processes_started_total", "Processes started.", &self.started),
            ("processes_failed_total", "Processes that ended badly.", &self.failed),
            ("output_bytes_total", "Bytes that processes have said.", &self.output_bytes),
            ("program_bytes_total", "Bytes of programs received.", &self.program_bytes),
        ] {
            metric(name, "counter", help, count.load(Relaxed));
        }
        page
    }
}

/// Serves the page until it is dropped.
pub(crate) async fn serve(listener: TcpListener, counts: Arc<Counts>, jobs: Arc<Jobs>) {
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (counts, jobs) = (counts.clone(), jobs.clone());
        tokio::spawn(async move {
            // A reader that fails or is too slow has nobody to be told.
            let _ = timeout(PATIENCE, answer(stream, &counts, &jobs)).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: TcpStream, counts: &Counts, jobs: &Jobs) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > LARGEST || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let is_page = request.starts_with(b"GET /metrics ");
    let (status, body) = if is_page {
        ("200 OK", counts.page(jobs))
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
    use super::*;

    async fn ask(request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        counts.started.store(7, Relaxed);
        let serving = tokio::spawn(serve(listener, counts, Arc::default()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        serving.abort();
        answer
    }

    #[tokio::test]
    async fn the_page_is_served_and_nothing_else() {
        let page = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("\ngossamer_processes_started_total 7\n"), "{page}");
        assert!(page.contains("# TYPE gossamer_jobs_running gauge\n"), "{page}");
        assert!(ask("GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404"));
    }
}

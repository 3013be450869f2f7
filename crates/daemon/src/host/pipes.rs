//! The input and output of a process, between its pipes and the controller.
//!
//! Each direction has a window: a bounded number of bytes may be in flight until the receiver
//! acknowledges some. So a slow receiver delays no other task, and no queue grows without bound.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use daemon_protocol::{FromDaemon, OUTPUT_WINDOW, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::sleep;

use crate::host::jobs::Job;
use crate::host::metrics::Counts;

/// How long to wait for the last output of a process that has ended.
pub(crate) const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Forwards one output of a process to the log and the controller.
pub(crate) struct Pump {
    pub(crate) stream: Stream,
    pub(crate) job: Arc<Job>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) outgoing: mpsc::UnboundedSender<FromDaemon>,
    pub(crate) window: Arc<Semaphore>,
    pub(crate) ended: watch::Receiver<bool>,
}

impl Pump {
    /// Forwards all bytes until the pipe ends.
    pub(crate) async fn run(mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 16 << 10];
        let mut ended = self.ended.clone();
        let late = async move {
            let _ = ended.wait_for(|ended| *ended).await;
            // A process that could not be killed still has the pipe open.
            sleep(LAST_OUTPUT).await;
        };
        tokio::pin!(late);
        loop {
            let bytes = tokio::select! {
                biased;
                read = pipe.read(&mut chunk) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(bytes) => bytes,
                },
                () = &mut late => return,
            };
            self.pass(&chunk[..bytes]).await;
        }
    }

    async fn pass(&mut self, bytes: &[u8]) {
        self.job.log.append(self.stream, bytes);
        self.counts.output_bytes.fetch_add(bytes.len() as u64, Relaxed);
        // Closed when the controller is lost.
        if let Ok(room) = self.window.acquire_many(bytes.len() as u32).await {
            room.forget();
            let _ = self.outgoing.send(FromDaemon::Output(self.stream, bytes.to_vec()));
        }
    }
}

/// Forwards input to a process.
pub(crate) struct Input {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes that the controller may send before the process takes some.
    room: Arc<Semaphore>,
}

impl Input {
    /// Writes to `pipe`, and acknowledges to the controller the bytes that the process has taken.
    pub(crate) fn new(mut pipe: pipe::Sender, outgoing: mpsc::UnboundedSender<FromDaemon>) -> Self {
        let (queue, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
        let room = Arc::new(Semaphore::new(OUTPUT_WINDOW));
        let taken = room.clone();
        tokio::spawn(async move {
            while let Some(bytes) = waiting.recv().await {
                // A process that has closed its input is not an error: the rest is dropped.
                let _ = pipe.write_all(&bytes).await;
                taken.add_permits(bytes.len());
                let _ = outgoing.send(FromDaemon::Taken(bytes.len() as u32));
            }
        });
        Self { queue, room }
    }

    /// False if the controller sends more than the window allows.
    pub(crate) fn push(&self, bytes: Vec<u8>) -> bool {
        let Ok(room) = self.room.try_acquire_many(bytes.len() as u32) else { return false };
        room.forget();
        // The task ends only when the queue does.
        let _ = self.queue.send(bytes);
        true
    }
}

//! [`Session`]: the state that the parts of a session share, and its messages to and from the
//! controller. Each direction has its own task ([`receive_loop`], [`send_loop`]).

use std::future::pending;
use std::sync::Arc;

use daemon_protocol::{
    EndedBy, FromController, FromDaemon, HEARTBEAT_INTERVAL, RunRequest, SILENCE_TIMEOUT,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::connection::{ConnectionError, Receiver, Sender};
use crate::host::daemon::Daemon;
use crate::host::session::error::SessionError;

/// Messages of the controller; an error is the last.
pub(super) type Incoming = mpsc::Receiver<Result<FromController, ConnectionError>>;

/// A session with one controller about one process.
pub(super) struct Session<'a> {
    pub(super) daemon: &'a Arc<Daemon>,
    pub(super) request: RunRequest,
    pub(super) incoming: Incoming,
    pub(super) outgoing: mpsc::UnboundedSender<FromDaemon>,
}

impl Session<'_> {
    /// Queues a message for the controller.
    pub(super) fn send(&self, message: FromDaemon) {
        // A lost controller is noticed by the receiving task.
        let _ = self.outgoing.send(message);
    }

    /// The next message of the controller; heartbeats are skipped.
    pub(super) async fn receive(&mut self) -> Result<FromController, SessionError> {
        loop {
            match self.incoming.recv().await {
                Some(Ok(FromController::Heartbeat)) => {}
                Some(Ok(message)) => return Ok(message),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(ConnectionError::Closed.into()),
            }
        }
    }
}

/// Forwards the messages of the controller until the connection ends.
pub(super) async fn receive_loop<R: AsyncRead + Unpin>(
    mut receiver: Receiver<R>,
    to_session: mpsc::Sender<Result<FromController, ConnectionError>>,
) {
    loop {
        let message = receiver.receive(SILENCE_TIMEOUT).await;
        let is_last = message.is_err();
        if to_session.send(message).await.is_err() || is_last {
            return;
        }
    }
}

/// Sends the queued messages to the controller, or heartbeats, until the queue is closed.
pub(super) async fn send_loop<W: AsyncWrite + Unpin>(
    mut sender: Sender<W>,
    mut queue: mpsc::UnboundedReceiver<FromDaemon>,
) {
    loop {
        let message = match timeout(HEARTBEAT_INTERVAL, queue.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(_) => FromDaemon::Heartbeat,
        };
        // A controller that reads nothing for this long counts as lost.
        if !matches!(timeout(SILENCE_TIMEOUT, sender.send(&message)).await, Ok(Ok(()))) {
            return;
        }
    }
    // An error is fine: the controller may have disconnected.
    let _ = timeout(SILENCE_TIMEOUT, sender.close()).await;
}

/// Waits for a request to end the job, and returns its source.
pub(super) async fn end_requested(requests: &mut watch::Receiver<Option<EndedBy>>) -> EndedBy {
    let by = requests.wait_for(Option::is_some).await.ok().and_then(|by| by.clone());
    match by {
        Some(by) => by,
        // The job is not listed any more, so no request can come.
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use daemon_protocol::Stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sending_to_a_controller_that_reads_nothing_times_out() {
        let (ours, _theirs) = tokio::io::duplex(10);
        let (outgoing, queue) = mpsc::unbounded_channel();
        outgoing.send(FromDaemon::Output(Stream::Out, vec![0; 100])).unwrap();
        drop(outgoing);
        let sent = timeout(10 * SILENCE_TIMEOUT, send_loop(Sender::new(ours), queue)).await;
        assert!(sent.is_ok(), "it still sends");
    }
}

//! [`Session`]: a session's messages to and from its controller, each way by a task of its own.

use crate::host::session::error::SessionError;
use crate::{
    host::daemon::Daemon,
    protocol::{
        EndedBy, FromController, FromDaemon, HEARTBEAT_INTERVAL, RunRequest, SILENCE_TIMEOUT,
        connection::{ConnectionError, Receiver, Sender},
    },
};
use std::{future::pending, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    time::timeout,
};

pub(super) type Said = mpsc::Receiver<Result<FromController, ConnectionError>>;

pub(super) struct Session<'a> {
    pub(super) daemon: &'a Arc<Daemon>,
    pub(super) request: RunRequest,
    pub(super) hears: Said,
    pub(super) tell: mpsc::UnboundedSender<FromDaemon>,
}

impl Session<'_> {
    pub(super) fn say(&self, message: FromDaemon) {
        // Whether the controller is gone is noticed where it is listened to.
        let _ = self.tell.send(message);
    }

    /// What the controller says next, `Heartbeat` left out.
    pub(super) async fn hear(&mut self) -> Result<FromController, SessionError> {
        loop {
            match self.hears.recv().await {
                Some(Ok(FromController::Heartbeat)) => {}
                Some(Ok(message)) => return Ok(message),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(ConnectionError::Closed.into()),
            }
        }
    }
}

pub(super) async fn listen<R: AsyncRead + Unpin>(
    mut receiver: Receiver<R>,
    said: mpsc::Sender<Result<FromController, ConnectionError>>,
) {
    loop {
        let message = receiver.receive(SILENCE_TIMEOUT).await;
        let is_last = message.is_err();
        if said.send(message).await.is_err() || is_last {
            return;
        }
    }
}

pub(super) async fn speak<W: AsyncWrite + Unpin>(
    mut sender: Sender<W>,
    mut told: mpsc::UnboundedReceiver<FromDaemon>,
) {
    loop {
        let message = match timeout(HEARTBEAT_INTERVAL, told.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(_) => FromDaemon::Heartbeat,
        };
        // A controller that takes nothing for so long is as good as gone.
        if !matches!(timeout(SILENCE_TIMEOUT, sender.send(&message)).await, Ok(Ok(()))) {
            return;
        }
    }
    // The controller may be gone, and then need not be told.
    let _ = timeout(SILENCE_TIMEOUT, sender.close()).await;
}

pub(super) async fn who(killed: &mut watch::Receiver<Option<EndedBy>>) -> EndedBy {
    let by = killed.wait_for(Option::is_some).await.ok().and_then(|by| by.clone());
    match by {
        Some(by) => by,
        // The job is gone, and nobody can kill it.
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Stream;

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_takes_nothing_is_not_spoken_to_for_ever() {
        let (ours, _theirs) = tokio::io::duplex(10);
        let (tell, told) = mpsc::unbounded_channel();
        tell.send(FromDaemon::Output(Stream::Out, vec![0; 100])).unwrap();
        drop(tell);
        let spoken = timeout(10 * SILENCE_TIMEOUT, speak(Sender::new(ours), told)).await;
        assert!(spoken.is_ok(), "it still speaks");
    }
}

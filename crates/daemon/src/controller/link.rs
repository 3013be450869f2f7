//! The controller's connection to one host of a job: two tasks, one for each direction.
//!
//! A controller does not trust daemons: [`SessionState`] checks the order of a daemon's messages and
//! its window, so that a daemon can neither fill the controller's memory nor confuse it. A violation
//! closes the connection.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use daemon_protocol::{
    CHUNK, FromController, FromDaemon, HEARTBEAT_INTERVAL, Name, Request, SILENCE_TIMEOUT,
};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::connection::ConnectionError;
use crate::controller::call::{CallError, Caller, FromHost, ToHost};
use crate::controller::session_state::{SessionState, Windows};

/// A message of the host with this number; an error is its last.
pub(crate) type HostMessage = (usize, Result<FromDaemon, ConnectionError>);

/// A message or a file to send to a host.
#[derive(Debug)]
pub(crate) enum ToSend {
    Message(FromController),
    /// The content of this file, as the program.
    Program(PathBuf),
}

/// The controller's end of a session with a daemon. Dropping it ends the session, and with it the
/// process there.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    queue: mpsc::UnboundedSender<ToSend>,
    windows: Arc<Windows>,
}

impl Link {
    /// Requests a process from `host`, number `number` of the job, and forwards its messages.
    pub(crate) async fn open(
        caller: &Caller,
        number: usize,
        host: &Name,
        request: Request,
        incoming: mpsc::Sender<HostMessage>,
    ) -> Result<Self, CallError> {
        let (from, to) = caller.connect(host, &request).await?;
        let (send, queue) = mpsc::unbounded_channel();
        let windows = Arc::new(Windows::default());
        let sending = tokio::spawn(send_loop(to, queue)).abort_handle();
        tokio::spawn(receive_loop(
            number,
            from,
            incoming,
            SessionState::new(windows.clone()),
            sending,
        ));
        Ok(Self { queue: send, windows })
    }

    /// A link to no host, and what is sent over it.
    #[cfg(test)]
    pub(crate) fn in_test() -> (Self, mpsc::UnboundedReceiver<ToSend>) {
        let (queue, sent) = mpsc::unbounded_channel();
        (Self { queue, windows: Arc::default() }, sent)
    }

    /// Queues a message. If the host is lost, the receiving task notices it.
    pub(crate) fn send(&self, message: FromController) {
        if let FromController::Input(bytes) = &message {
            self.windows.sends_input(bytes.len());
        }
        let _ = self.queue.send(ToSend::Message(message));
    }

    /// Acknowledges `bytes` of output as printed, so that the host may send more.
    pub(crate) fn printed(&self, bytes: usize) {
        self.windows.has_printed(bytes);
        self.send(FromController::Printed(bytes as u32));
    }

    /// Sends a program.
    pub(crate) fn push(&self, file: PathBuf) {
        let _ = self.queue.send(ToSend::Program(file));
    }
}

async fn receive_loop(
    number: usize,
    mut from: FromHost,
    incoming: mpsc::Sender<HostMessage>,
    mut state: SessionState,
    sending: AbortHandle,
) {
    loop {
        let message = from.receive(SILENCE_TIMEOUT).await.and_then(|message| state.check(message));
        if matches!(message, Ok(FromDaemon::Heartbeat)) {
            continue;
        }
        let is_last = message.is_err();
        if matches!(message, Err(ConnectionError::Violation(_))) {
            // Both directions end, which closes the connection.
            sending.abort();
        }
        if incoming.send((number, message)).await.is_err() || is_last {
            return;
        }
    }
}

async fn send_loop(mut to: ToHost, mut queue: mpsc::UnboundedReceiver<ToSend>) {
    loop {
        let next = match timeout(HEARTBEAT_INTERVAL, queue.recv()).await {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(_) => ToSend::Message(FromController::Heartbeat),
        };
        let sent = match next {
            ToSend::Message(message) => to.send(&message).await,
            ToSend::Program(file) => send_program(&mut to, file).await,
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = to.close().await;
}

async fn send_program(to: &mut ToHost, file: PathBuf) -> Result<(), ConnectionError> {
    // If the file has changed meanwhile, the host sees that the digest is not the announced one.
    let mut file = File::open(file).await.map_err(ConnectionError::Io)?;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        let read: io::Result<usize> = (&mut file).take(CHUNK as u64).read_to_end(&mut chunk).await;
        if read.map_err(ConnectionError::Io)? == 0 {
            return to.send(&FromController::ProgramEnd).await;
        }
        to.send(&FromController::Program(chunk)).await?;
    }
}

//! The controller's connection to one host of a job: two tasks, one for each direction.

use crate::{
    connection::ConnectionError,
    controller::call::{CallError, Caller, FromHost, ToHost},
    identity::Name,
    message::{ALIVE_EVERY, CHUNK, FromController, FromDaemon, Request, SILENCE},
};
use std::{io, path::PathBuf};
use tokio::{fs::File, io::AsyncReadExt, sync::mpsc, time::timeout};

/// What a host says, or that it says nothing more.
pub(crate) type Heard = (usize, Result<FromDaemon, ConnectionError>);

/// What is to be sent to a host.
#[derive(Debug)]
pub(crate) enum ToSend {
    Message(FromController),
    /// The content of this file, as the program.
    Program(PathBuf),
}

/// The controller's end of a conversation with a daemon. Dropped, the conversation ends, and with
/// it the process there.
#[derive(Clone, Debug)]
pub(crate) struct Link(mpsc::UnboundedSender<ToSend>);

impl Link {
    /// Asks `host`, number `number` of the job, for a process, and hands on what it says.
    pub(crate) async fn open(
        caller: &Caller,
        number: usize,
        host: &Name,
        request: Request,
        heard: mpsc::Sender<Heard>,
    ) -> Result<Self, CallError> {
        let (from, to) = caller.connect(host, &request).await?;
        let (send, queue) = mpsc::unbounded_channel();
        tokio::spawn(listen(number, from, heard));
        tokio::spawn(speak(to, queue));
        Ok(Self(send))
    }

    /// Sends a message, when those before it are sent. Whether the host is gone is noticed where
    /// it is listened to.
    pub(crate) fn say(&self, message: FromController) {
        let _ = self.0.send(ToSend::Message(message));
    }

    /// Sends a program.
    pub(crate) fn push(&self, file: PathBuf) {
        let _ = self.0.send(ToSend::Program(file));
    }
}

async fn listen(number: usize, mut from: FromHost, heard: mpsc::Sender<Heard>) {
    loop {
        let message = from.receive(SILENCE).await;
        let is_last = message.is_err();
        if matches!(message, Ok(FromDaemon::Alive)) {
            continue;
        }
        if heard.send((number, message)).await.is_err() || is_last {
            return;
        }
    }
}

async fn speak(mut to: ToHost, mut queue: mpsc::UnboundedReceiver<ToSend>) {
    loop {
        let next = match timeout(ALIVE_EVERY, queue.recv()).await {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(_) => ToSend::Message(FromController::Alive),
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
    // If the file has changed meanwhile, the host finds that it is not what was announced.
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

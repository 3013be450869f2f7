//! Messages over a stream: the two ends of a connection, each with a limit on how long it waits.

use std::io;
use std::time::Duration;

use daemon_protocol::frame::{self, Decoder, FrameError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// A connection cannot be used any more.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The peer has closed it.
    #[error("the connection was closed")]
    Closed,
    /// The peer has sent nothing for too long.
    #[error("no message within {} ms", .0.as_millis())]
    Silent(Duration),
    /// The bytes are not a message.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The protocol does not allow the peer to send this message, or not now.
    #[error("protocol violation: {0}")]
    Violation(String),
    /// A system call failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A TLS peer that is killed does not close its side.
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// The receiving end of a connection.
#[derive(Debug)]
pub struct Receiver<R> {
    stream: R,
    decoder: Decoder,
    chunk: Vec<u8>,
    received: u64,
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    /// Messages from `stream`.
    pub fn new(stream: R) -> Self {
        Self { stream, decoder: Decoder::default(), chunk: vec![0; 16 << 10], received: 0 }
    }

    /// Receives the next message; fails if nothing arrives for `silence`. Cancellation loses nothing.
    ///
    /// # Errors
    /// [`ConnectionError`], after which the connection cannot be used.
    pub async fn receive<T: DeserializeOwned>(
        &mut self,
        silence: Duration,
    ) -> Result<T, ConnectionError> {
        loop {
            if let Some(message) = self.decoder.decode()? {
                return Ok(message);
            }
            let read = timeout(silence, self.stream.read(&mut self.chunk)).await;
            match read.map_err(|_| ConnectionError::Silent(silence))?? {
                0 => return Err(ConnectionError::Closed),
                bytes => {
                    self.received += bytes as u64;
                    self.decoder.push(&self.chunk[..bytes]);
                }
            }
        }
    }

    /// Bytes that have arrived, including those of messages not returned yet.
    pub fn received(&self) -> u64 {
        self.received
    }
}

/// The sending end of a connection.
#[derive(Debug)]
pub struct Sender<W>(W);

impl<W: AsyncWrite + Unpin> Sender<W> {
    /// Messages to `stream`.
    pub fn new(stream: W) -> Self {
        Self(stream)
    }

    /// Sends a message. After a cancellation the connection cannot be used any more.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), ConnectionError> {
        self.0.write_all(&frame::encode(message)?).await?;
        Ok(self.0.flush().await?)
    }

    /// Closes this side of the connection.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub async fn close(mut self) -> Result<(), ConnectionError> {
        Ok(self.0.shutdown().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_given_up() {
        let (_theirs, ours) = tokio::io::duplex(100);
        let error = Receiver::new(ours).receive::<u8>(Duration::from_secs(3)).await.unwrap_err();
        assert!(matches!(error, ConnectionError::Silent(_)), "{error}");
    }

    #[tokio::test]
    async fn messages_arrive_in_order_and_then_the_end() {
        let (theirs, ours) = tokio::io::duplex(7);
        let sending = tokio::spawn(async move {
            let mut sender = Sender::new(theirs);
            for number in 0..100u32 {
                sender.send(&number).await.unwrap();
            }
            sender.close().await.unwrap();
        });
        let mut receiver = Receiver::new(ours);
        for number in 0..100u32 {
            let received: u32 = receiver.receive(Duration::from_secs(60)).await.unwrap();
            assert_eq!(received, number);
        }
        assert_eq!(receiver.received(), 100 * 5);
        let end = receiver.receive::<u32>(Duration::from_secs(60)).await.unwrap_err();
        assert!(matches!(end, ConnectionError::Closed), "{end}");
        sending.await.unwrap();
    }
}

//! [`Channel`]: messages under TLS between two tasks, with one deadline for a whole message, which
//! a peer that sends a byte now and then does not extend.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use rustls::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the largest message: where all hosts of a rack listen.
const LARGEST: usize = 1 << 18;

/// A connection under TLS, whose reads and writes wait.
pub(crate) struct Channel {
    connection: Connection,
    socket: TcpStream,
    /// When reads and writes fail.
    pub(crate) deadline: Instant,
}

impl Channel {
    /// `socket` blocks.
    pub(crate) fn new(
        connection: Connection,
        socket: TcpStream,
        deadline: Instant,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { connection, socket, deadline })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Exchanges what TLS wants to exchange; during the handshake, all of it.
    fn exchange(&mut self) -> io::Result<()> {
        let Self { connection, socket, deadline } = self;
        connection.complete_io(&mut Bounded { socket, deadline: *deadline }).map(drop)
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.exchange()?,
                read => return read,
            }
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nothing is sent to a peer that has not authenticated.
        while self.connection.is_handshaking() {
            self.exchange()?;
        }
        let written = self.connection.writer().write(bytes)?;
        self.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Self { connection, socket, deadline } = self;
        while connection.wants_write() {
            connection.write_tls(&mut Bounded { socket, deadline: *deadline })?;
        }
        Ok(())
    }
}

/// A socket with a deadline for all of its reads and writes together.
struct Bounded<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl Bounded<'_> {
    /// Calls the system with the time that is left.
    fn call(
        &mut self,
        call: impl FnOnce(&mut &TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let late =
            || io::Error::new(ErrorKind::TimedOut, "no complete message before the deadline");
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.set_write_timeout(Some(left))?;
        call(&mut self.socket).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => late(),
            _ => error,
        })
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(|socket| socket.read(buffer))
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(&json)?;
    stream.flush()
}

pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LARGEST {
        return Err(io::Error::other(format!("a message of {length} bytes, more than {LARGEST}")));
    }
    let mut json = Vec::new();
    stream.by_ref().take(length as u64).read_to_end(&mut json)?;
    serde_json::from_slice(&json).map_err(io::Error::other)
}

//! [`Wire`]: a non-blocking socket, with or without TLS on it.
//!
//! A batch is one write of the system: without TLS of its bytes, with TLS of its records. A read is
//! one read of the system into the thread's own buffer, however many frames it brings.

pub(crate) mod frame;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::SendFlags;
use rustls::Connection;
use transport_api::LossReason;
use transport_control::Violation;

/// Bytes that one read of the system takes, at most.
const READ_BYTES: usize = 128 << 10;

/// Bytes that are encrypted at a time.
const RECORDS_BYTES: usize = 256 << 10;

thread_local! {
    /// Where each thread reads to. Nothing stays in it between two reads.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Why a connection cannot be used any more.
#[derive(Debug)]
pub(crate) enum WireError {
    /// The other side closed it.
    Closed,
    /// The network failed.
    Failed(String),
    /// TLS authentication failed, on either side.
    Tls(String),
    /// The other side sent something that no peer of this build sends.
    Violation(Violation),
}

impl From<Violation> for WireError {
    fn from(violation: Violation) -> Self {
        WireError::Violation(violation)
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        WireError::Failed(error.to_string())
    }
}

impl From<rustls::Error> for WireError {
    fn from(error: rustls::Error) -> Self {
        WireError::Tls(error.to_string())
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Closed => f.write_str("it closed the connection"),
            WireError::Failed(why) | WireError::Tls(why) => f.write_str(why),
            WireError::Violation(what) => what.fmt(f),
        }
    }
}

impl WireError {
    /// Why a peer whose connection is broken is lost.
    pub(crate) fn reason(self) -> LossReason {
        match self {
            WireError::Closed => {
                LossReason::Connection("it closed its connection without a goodbye".into())
            }
            WireError::Failed(why) | WireError::Tls(why) => LossReason::Connection(why),
            WireError::Violation(what) => LossReason::Protocol(what.to_string()),
        }
    }
}

/// A connected, non-blocking socket.
pub(crate) struct Wire {
    socket: TcpStream,
    tls: Option<Box<Connection>>,
    /// Whether data that followed the handshake may have been decrypted and not read.
    has_early: bool,
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a call of the system came to, where "not now" is no error.
fn now<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// As [`now`], for a system call made without the C library, where each call is a cancellation point: a third
/// of its instructions.
#[inline]
fn at_once<T>(result: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[inline]
fn receive(socket: &TcpStream, into: &mut [u8]) -> io::Result<Option<usize>> {
    at_once(rustix::io::read(socket, into))
}

#[inline]
fn send(socket: &TcpStream, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)
}

impl Wire {
    /// `socket` is non-blocking.
    pub(crate) fn new(socket: TcpStream, tls: Option<Connection>) -> Self {
        let mut tls = tls.map(Box::new);
        if let Some(tls) = &mut tls {
            // What is given to it is given because it has room.
            tls.set_buffer_limit(None);
        }
        Self { socket, has_early: tls.is_some(), tls }
    }

    pub(crate) fn tls(&self) -> Option<&Connection> {
        self.tls.as_deref()
    }

    // ---- While the other side is not yet known.

    /// Goes on with the TLS handshake; true once it is complete.
    pub(crate) fn handshake(&mut self) -> Result<bool, WireError> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        loop {
            while tls.wants_write() {
                if now(tls.write_tls(&mut self.socket))?.is_none() {
                    return Ok(false);
                }
            }
            if !tls.is_handshaking() {
                return Ok(true);
            }
            match now(tls.read_tls(&mut self.socket))? {
                None => return Ok(false),
                Some(0) => return Err(WireError::Closed),
                Some(_) => {
                    if let Err(error) = tls.process_new_packets() {
                        // So that the other side can know why; it need not.
                        let _ = tls.write_tls(&mut self.socket);
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// Reads what is missing of `into`, of which `have` bytes are there, and not a byte more; true
    /// once all is there.
    pub(crate) fn read_exactly(
        &mut self,
        into: &mut [u8],
        have: &mut usize,
    ) -> Result<bool, WireError> {
        while *have < into.len() {
            let rest = &mut into[*have..];
            let read = match &mut self.tls {
                None => now(self.socket.read(rest))?,
                Some(tls) => match now(tls.reader().read(rest))? {
                    Some(count) => Some(count),
                    None => match now(tls.read_tls(&mut self.socket))? {
                        None => None,
                        Some(0) => Some(0),
                        Some(_) => {
                            tls.process_new_packets()?;
                            continue;
                        }
                    },
                },
            };
            match read {
                None => return Ok(false),
                Some(0) => return Err(WireError::Closed),
                Some(count) => *have += count,
            }
        }
        Ok(true)
    }

    // ---- Afterwards.

    /// Reads once, and hands what has come to `each`, in pieces; true if anything has.
    pub(crate) fn receive(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), Violation>,
    ) -> Result<bool, WireError> {
        let Self { socket, tls, has_early } = self;
        let Some(tls) = tls else {
            return SCRATCH.with_borrow_mut(|scratch| match receive(socket, scratch)? {
                None => Ok(false),
                Some(0) => Err(WireError::Closed),
                Some(count) => Ok(each(&scratch[..count]).map(|()| true)?),
            });
        };
        let mut any = std::mem::take(has_early) && plaintext(tls, &mut each)?;
        SCRATCH.with_borrow_mut(|scratch| {
            let Some(count) = receive(socket, scratch)? else { return Ok(any) };
            if count == 0 {
                return Err(WireError::Closed);
            }
            let mut records = &scratch[..count];
            while !records.is_empty() {
                if tls.read_tls(&mut records)? == 0 {
                    return Err(WireError::Closed);
                }
                tls.process_new_packets()?;
                any |= plaintext(tls, &mut each)?;
            }
            Ok(any)
        })
    }

    /// Sends as much of `bytes` as there is room for; how much that was. Zero means: not now.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        let Some(tls) = &mut self.tls else {
            return Ok(at_once(send(&self.socket, bytes))?.unwrap_or(0));
        };
        if tls.wants_write() {
            return Ok(0);
        }
        let count = bytes.len().min(RECORDS_BYTES);
        Ok(tls.writer().write(&bytes[..count])?)
    }

    /// Whether something was encrypted that has not gone.
    #[inline]
    pub(crate) fn has_records(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what was encrypted and has not gone; true if nothing is left.
    pub(crate) fn flush(&mut self) -> Result<bool, WireError> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                if now(tls.write_tls(&mut Single(&self.socket)))?.is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// A socket to which one record, which is what most batches are, is written by itself: a list of
/// buffers takes the system longer, even if it has only one.
struct Single<'a>(&'a TcpStream);

impl Write for Single<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes)?)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match buffers {
            [one] => self.write(one),
            several => self.0.write_vectored(several),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands on what has been decrypted; true if there was any.
fn plaintext(
    tls: &mut Connection,
    each: &mut impl FnMut(&[u8]) -> Result<(), Violation>,
) -> Result<bool, WireError> {
    let mut any = false;
    let mut reader = tls.reader();
    loop {
        match now(reader.fill_buf())? {
            None => return Ok(any),
            // A goodbye of TLS: whatever it means, nothing more comes.
            Some([]) => return Err(WireError::Closed),
            Some(bytes) => {
                let count = bytes.len();
                each(bytes)?;
                reader.consume(count);
                any = true;
            }
        }
    }
}

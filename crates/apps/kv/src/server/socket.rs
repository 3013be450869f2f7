//! [`Listener`] and [`Socket`]: TCP and Unix sockets as one type each.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 1024;

/// A socket that listens, and does not block.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// At a path, which is removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens on a TCP address. With `shares_port`, other processes of the same user may listen
    /// there, too: the kernel spreads connections over them.
    ///
    /// # Errors
    /// If the address cannot be bound, for example because the port is in use.
    pub fn tcp(address: SocketAddr, shares_port: bool) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, shares_port)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self::Tcp(TcpListener::from(socket)))
    }

    /// Listens at a path. A socket that is there and on which nothing listens is replaced, as one of
    /// a server that was killed.
    ///
    /// # Errors
    /// If there is another file, or a server listens there.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path).or_else(|error| {
            // Connecting to a file that is no socket is refused, too.
            let is_socket =
                || path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
            let is_left = error.kind() == ErrorKind::AddrInUse
                && is_socket()
                && UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            if !is_left {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    /// Where it listens, as `stats conns` reports it.
    pub fn name(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| String::new(), |at| format!("tcp:{at}"))
            }
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// The TCP address, with the actual port if port 0 was requested.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Accepts a connection; its peer, as `stats conns` reports it.
    ///
    /// # Errors
    /// Those of the system call; [`ErrorKind::WouldBlock`] if there is none.
    pub fn accept(&self) -> io::Result<(Socket, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // Without it responses are only slower.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(Arc::new(stream)), format!("tcp:{peer}")))
            }
            Self::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Socket::Unix(Arc::new(stream)), format!("unix:{}", path.display())))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A connection, which does not block.
#[derive(Clone, Debug)]
pub enum Socket {
    /// Over TCP.
    Tcp(Arc<TcpStream>),
    /// Over a Unix socket.
    Unix(Arc<UnixStream>),
}

impl Socket {
    /// Reads what has arrived.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&**stream).read(buffer),
            Self::Unix(stream) => (&**stream).read(buffer),
        }
    }

    /// Writes as much as fits.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, parts) {
            (Self::Tcp(stream), [part]) => (&**stream).write(part),
            (Self::Tcp(stream), _) => (&**stream).write_vectored(parts),
            (Self::Unix(stream), _) => (&**stream).write_vectored(parts),
        }
    }

    /// Ends the input: what has arrived can still be read.
    pub fn end_input(&self) {
        // Fails if the peer is gone, and the input has ended.
        let _ = rustix::net::shutdown(self, Shutdown::Read);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let path = std::env::temp_dir().join(format!("kv-replaced-{}.sock", std::process::id()));
        std::fs::write(&path, "text").unwrap();
        let error = Listener::unix(&path).expect_err("a file is there");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        std::fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let listens = Listener::unix(&path).unwrap();
        let error = Listener::unix(&path).expect_err("a server listens there");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(listens);
        assert!(!path.exists());
    }
}

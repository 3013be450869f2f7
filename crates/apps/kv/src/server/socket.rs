//! [`Listener`] and [`Socket`]: TCP and Unix sockets as one type each.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, sockopt,
};

/// Connections that wait to be accepted, at most.
pub(super) const BACKLOG: i32 = 1024;

/// Attempts to lock the folder of a Unix socket, and the time between two. Servers hold the lock only
/// while they bind.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// A socket that listens, and does not block.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// At a path.
    Unix(UnixListener, SocketPath),
}

/// The path of a Unix socket, which is removed on drop, unless there is another file by then.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl SocketPath {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: identity(path)? })
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = path.symlink_metadata()?;
    Ok((file.dev(), file.ino()))
}

/// Locks the folder of `path` against other servers that replace a socket there; `None` if that is
/// not possible.
fn lock_folder(path: &Path) -> Option<File> {
    let folder = match path.parent()? {
        folder if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    let folder = File::open(folder).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match folder.try_lock() {
            Ok(()) => return Some(folder),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Whether `path` is a socket on which nothing listens.
fn is_left_behind(path: &Path) -> bool {
    let probe = || -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // If the listener's queue is full, this fails with EAGAIN.
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    // Connecting to a file that is no socket is refused, too.
    path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket())
        && probe() == Err(Errno::CONNREFUSED)
}

/// A TCP socket with this address.
fn bind(address: SocketAddr, shares_port: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shares_port)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

impl Listener {
    /// Listens on a TCP address. With `shares_port`, other processes of the same user may listen
    /// there, too: the kernel spreads connections over them.
    ///
    /// # Errors
    /// If the address cannot be bound, for example because the port is in use.
    pub fn tcp(address: SocketAddr, shares_port: bool) -> io::Result<Self> {
        let socket = bind(address, shares_port)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self::Tcp(TcpListener::from(socket)))
    }

    /// Checks that nothing listens on a TCP address, shared or not. Returns the address, with a free port
    /// in place of 0.
    ///
    /// # Errors
    /// If something does, or the address cannot be bound.
    pub fn find_free(address: SocketAddr) -> io::Result<SocketAddr> {
        Ok(rustix::net::getsockname(bind(address, false)?)?.try_into()?)
    }

    /// Listens at a path. A socket that is there and on which nothing listens is replaced, as one of
    /// a server that was killed.
    ///
    /// # Errors
    /// If there is another file, or a server listens there.
    pub fn unix(path: &Path) -> io::Result<Self> {
        // Until the socket listens: before, another server takes it for one that was left behind.
        let lock = lock_folder(path);
        let listener = UnixListener::bind(path).or_else(|error| {
            let replaces =
                error.kind() == ErrorKind::AddrInUse && lock.is_some() && is_left_behind(path);
            if !replaces {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        })?;
        let path = SocketPath::new(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, path))
    }

    /// Where it listens, as `stats conns` reports it.
    pub fn name(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| String::new(), |at| format!("tcp:{at}"))
            }
            Self::Unix(_, at) => format!("unix:{}", at.path.display()),
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
                // Without it a client that has vanished is noticed when it is idle for too long.
                let _ = sockopt::set_socket_keepalive(&stream, true);
                Ok((Socket::Tcp(Arc::new(stream)), format!("tcp:{peer}")))
            }
            Self::Unix(listener, at) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Socket::Unix(Arc::new(stream)), format!("unix:{}", at.path.display())))
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

    /// Ends input and output: a fiber that waits for the socket goes on, and finds it at its end.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(self, Shutdown::Both);
    }

    /// Whether the client is gone: nothing can be sent to it any more.
    pub fn has_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(self, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok()
            && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
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

    #[test]
    fn a_listener_removes_no_socket_but_its_own() {
        let path = std::env::temp_dir().join(format!("kv-owned-{}.sock", std::process::id()));
        let first = Listener::unix(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::unix(&path).unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok(), "the second listener's socket was removed");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_listener_whose_queue_is_full_is_not_replaced() {
        let path = std::env::temp_dir().join(format!("kv-full-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut clients = Vec::new();
        loop {
            let flags = SocketFlags::NONBLOCK;
            let client =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
            clients.push(client.unwrap());
            let address = SocketAddrUnix::new(&path).unwrap();
            match connect(clients.last().unwrap(), &address) {
                Ok(()) => assert!(clients.len() < 100, "the queue has no end"),
                Err(error) => break assert_eq!(error, Errno::AGAIN),
            }
        }
        let (sender, result) = std::sync::mpsc::channel();
        let at = path.clone();
        std::thread::spawn(move || sender.send(Listener::unix(&at).map(drop)));
        let result = result.recv_timeout(Duration::from_secs(10)).expect("the probe blocks");
        assert_eq!(result.unwrap_err().kind(), ErrorKind::AddrInUse);
        std::fs::remove_file(&path).unwrap();
    }
}

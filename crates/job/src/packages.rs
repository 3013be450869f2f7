//! The socket over which a daemon brings packages of code into a process, and the process says what
//! became of them and which jams it runs.
//!
//! Each message is a length in four bytes, little-endian, and so many bytes of JSON; after a
//! [`PackageHeader`] follow the bytes of the package. A process trusts its daemon, which has started
//! it; a daemon trusts nothing that a process sends.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::environment::{JobError, take_descriptor};
use crate::signers::SigningAuthority;

/// The environment variable with the number of the descriptor of the socket for packages.
pub const PACKAGES_FD: &str = "GOSSAMER_PACKAGES_FD";
/// Bytes of the largest message that a process sends.
pub const LARGEST_FROM_PROCESS: usize = 4096;
/// How long a process waits for a daemon that does not read.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// Bytes of the largest header: with a list of revoked certificates as long as a daemon reads.
const LARGEST_HEADER: usize = 40 << 20;

/// What precedes the bytes of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageHeader {
    /// Distinguishes it from other packages of this daemon.
    pub number: u64,
    /// How many bytes it has; 0 for none, if only the authority is to be told.
    pub bytes: u64,
    /// The authority of the rack, with the newest list of revoked certificates.
    pub authority: SigningAuthority,
}

/// What a process does with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CodeEvent {
    /// A jam is about to be linked for the first time, and to run if that succeeds.
    FirstRun,
    /// Code of a ried is about to run for the first time.
    RiedStarts,
    /// A ried was loaded.
    RiedLoaded,
    /// A load of a ried was taken back.
    RiedUnloaded,
}

/// What a process sends its daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromProcess {
    /// What became of a package.
    Package {
        /// The number in its header.
        number: u64,
        /// Why the process does not take it, if it does not.
        refused: Option<String>,
    },
    /// The process does something with code, for the audit log.
    Audit {
        /// What it does.
        event: CodeEvent,
        /// The name of the jam or ried.
        name: String,
        /// Its digest, in hexadecimal.
        digest: String,
        /// Who answers for it.
        origin: String,
        /// The number of the host that had it done, as that host says; `None` for the process itself.
        host: Option<u32>,
    },
    /// So many entries of the audit log were not reported, because there were too many at a time.
    NotReported(u64),
}

/// A message with its length in front.
pub fn package_message<T: Serialize>(message: &T) -> Vec<u8> {
    let json = serde_json::to_vec(message).expect("text and numbers can always be serialised");
    let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&json);
    bytes
}

/// A process's end of the socket.
#[derive(Debug)]
pub struct PackageSocket(UnixStream);

impl PackageSocket {
    /// The socket of this process; `None` if no daemon started it. To be called once: each call makes
    /// another descriptor of the same socket.
    ///
    /// # Errors
    /// [`JobError`], if the environment names a descriptor that is not a socket.
    pub fn from_environment() -> Result<Option<Self>, JobError> {
        let Some(fd) = take_descriptor(PACKAGES_FD)? else { return Ok(None) };
        let failed = |error| JobError::Read { variable: PACKAGES_FD, error };
        let socket = UnixStream::from(fd);
        let bounded = socket.local_addr().and_then(|_| socket.set_write_timeout(Some(WRITE_TIME)));
        bounded.map_err(failed)?;
        Ok(Some(Self(socket)))
    }

    /// Another handle to the same socket, for another thread.
    ///
    /// # Errors
    /// The error of the system.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Waits for the next package; `None` when there will be none.
    ///
    /// # Errors
    /// The error of the system, or the daemon sent something else.
    pub fn receive(&mut self) -> io::Result<Option<(PackageHeader, Vec<u8>)>> {
        let Some(header) = receive_message::<PackageHeader>(&mut self.0, LARGEST_HEADER)? else {
            return Ok(None);
        };
        let len = usize::try_from(header.bytes).map_err(io::Error::other)?;
        if len > jam_format::MAX_PACKAGE_BYTES {
            return Err(io::Error::other(format!("package of {len} bytes")));
        }
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes)?;
        Ok(Some((header, bytes)))
    }

    /// Sends a message; one that is too long is cut in its texts.
    ///
    /// # Errors
    /// The error of the system.
    pub fn send(&mut self, message: &FromProcess) -> io::Result<()> {
        self.0.write_all(&package_message(&shortened(message)))
    }

    /// Ends both directions: a thread in [`receive`](Self::receive) returns.
    pub fn shut_down(&self) {
        // It fails if the daemon has ended.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl From<UnixStream> for PackageSocket {
    fn from(socket: UnixStream) -> Self {
        Self(socket)
    }
}

fn receive_message<T: DeserializeOwned>(
    from: &mut impl Read,
    largest: usize,
) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > largest {
        return Err(io::Error::other(format!(
            "message of {len} bytes, expected at most {largest}"
        )));
    }
    let mut json = vec![0; len];
    from.read_exact(&mut json)?;
    serde_json::from_slice(&json).map(Some).map_err(io::Error::other)
}

/// The same with texts that fit [`LARGEST_FROM_PROCESS`] in the worst encoding.
fn shortened(message: &FromProcess) -> FromProcess {
    let cut = |text: &str| text[..text.floor_char_boundary(200)].to_owned();
    match message {
        FromProcess::Package { number, refused } => {
            FromProcess::Package { number: *number, refused: refused.as_deref().map(cut) }
        }
        FromProcess::Audit { event, name, digest, origin, host } => FromProcess::Audit {
            event: *event,
            name: cut(name),
            digest: cut(digest),
            origin: cut(origin),
            host: *host,
        },
        FromProcess::NotReported(count) => FromProcess::NotReported(*count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_arrives_and_is_answered() {
        let (mut daemon, process) = UnixStream::pair().unwrap();
        let mut process = PackageSocket::from(process);
        let authority = SigningAuthority { ca: vec![1, 255], ..SigningAuthority::default() };
        let header = PackageHeader { number: 3, bytes: 5, authority };
        daemon.write_all(&package_message(&header)).unwrap();
        daemon.write_all(b"bytes").unwrap();
        assert_eq!(process.receive().unwrap(), Some((header, b"bytes".to_vec())));
        let refused = FromProcess::Package { number: 3, refused: Some("no".into()) };
        process.send(&refused).unwrap();
        let answer = receive_message(&mut daemon, LARGEST_FROM_PROCESS).unwrap();
        assert_eq!(answer, Some(refused));
        drop(daemon);
        assert_eq!(process.receive().unwrap(), None);
    }

    #[test]
    fn long_texts_are_cut_so_that_a_daemon_takes_them() {
        let long = "\u{1}".repeat(9999);
        let (name, digest, origin) = (long.clone(), long.clone(), long);
        let (event, host) = (CodeEvent::FirstRun, Some(u32::MAX));
        let message = shortened(&FromProcess::Audit { event, name, digest, origin, host });
        assert!(package_message(&message).len() <= 4 + LARGEST_FROM_PROCESS);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_before_it_is_read() {
        let error = receive_message::<u8>(&mut &[0xff; 8][..], 100).unwrap_err();
        assert!(error.to_string().contains("expected at most 100"), "{error}");
        assert!(receive_message::<u8>(&mut &[2, 0, 0, 0, b'7'][..], 100).is_err());
        assert_eq!(receive_message::<u8>(&mut &[1, 0, 0][..], 100).unwrap(), None);
    }
}

//! [`AlarmSockets`]: a pair of datagram sockets for each thread that does not sleep on a futex.
//!
//! The sending end is one open file in many processes, of which any may change its flags. So a ring
//! asks for each send by itself not to block (`MSG_DONTWAIT`), which no other process can undo; an
//! eventfd or a pipe has only the flag that all share.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

/// Rings that one [`take`] takes, at most: more than wait unless a peer floods the alarm.
const RINGS: usize = 64;

/// The alarms of a host's threads.
pub(crate) struct AlarmSockets {
    /// Where the threads wait. Never handed to a peer.
    pub(crate) waiting: Vec<OwnedFd>,
    /// Where this host and its neighbours ring them.
    pub(crate) ringing: Vec<OwnedFd>,
}

impl AlarmSockets {
    /// Alarms for this many threads.
    pub(crate) fn new(threads: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = |_| Ok(socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?);
        let pairs: Vec<_> = (0..threads).map(pair).collect::<io::Result<_>>()?;
        let (waiting, ringing) = pairs.into_iter().unzip();
        Ok(Self { waiting, ringing })
    }
}

/// Rings. Never blocks, even on a descriptor that a malicious peer sent or changed.
pub(crate) fn ring(alarm: &OwnedFd) {
    // It fails when rings wait already, each of which wakes the thread; when the host is gone; or
    // when a peer has broken the alarm, which then wakes no thread of that peer's.
    let _ = send(alarm, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes the rings that wait, so that there is room for the next one.
pub(crate) fn take(alarm: impl AsFd) {
    let mut byte = [0];
    for _ in 0..RINGS {
        if recv(&alarm, &mut byte[..], RecvFlags::DONTWAIT).is_err() {
            return;
        }
    }
}

//! The sockets between processes: packets with descriptors, and with the kernel's word for who
//! sent them.
//!
//! The leader makes them in pairs, and children inherit them or get them handed over, so they have
//! no name under which another process could find them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair, sockopt,
};
use transport_control::Violation;

use crate::wire::packet::{MAX_FILES, PACKET_BYTES, Packet};

/// Who sent a packet, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

impl Sender {
    /// This process, by the ids that the kernel puts on its packets.
    pub(crate) fn this() -> Self {
        Self { pid: std::process::id(), uid: rustix::process::getuid().as_raw() }
    }
}

/// A packet that arrived.
pub(crate) struct Received {
    pub(crate) packet: Packet,
    /// As many as the packet [says](Packet::files).
    pub(crate) files: Vec<OwnedFd>,
    pub(crate) from: Sender,
}

/// A pair of connected sockets that are closed on exec, do not block, and say who sent what.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    sockopt::set_socket_passcred(&a, true)?;
    sockopt::set_socket_passcred(&b, true)?;
    Ok((a, b))
}

/// The process at the other end of `socket`, from the kernel's record: the one that connected,
/// listened, or made the pair.
pub(crate) fn other_end(socket: &OwnedFd) -> io::Result<Sender> {
    let peer = sockopt::socket_peercred(socket)?;
    Ok(Sender { pid: peer.pid.as_raw_nonzero().get().unsigned_abs(), uid: peer.uid.as_raw() })
}

/// Sends a packet, with the descriptors that come with it, or fails if there is no room.
pub(crate) fn send(socket: impl AsFd, packet: &Packet, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let bytes = packet.encode();
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Why no packet was received.
#[derive(Debug)]
pub(crate) enum NoPacket {
    /// No packet has arrived yet.
    NotYet,
    /// The other end is closed.
    Closed,
    /// The sender broke the protocol.
    Violation(Violation),
    /// The system refused.
    System(io::Error),
}

/// Takes the next packet, if one is there. A packet of the control plane comes without its descriptor if
/// this process has no room for one.
pub(crate) fn receive(socket: impl AsFd) -> Result<Received, NoPacket> {
    let mut buffer = [0; PACKET_BYTES];
    // Room for more descriptors than any packet brings, so that a surplus is closed, not lost.
    let mut space =
        [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES + 1), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let mut take = || recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
    // A peer that closes without having read everything resets the connection. The kernel reports
    // that once, ahead of the packets that the peer sent before and that are still queued here.
    let received = match take() {
        Err(Errno::CONNRESET) => take(),
        first => first,
    };
    let received = match received {
        Ok(received) if received.bytes == 0 => return Err(NoPacket::Closed),
        Ok(received) => received,
        Err(Errno::AGAIN) => return Err(NoPacket::NotYet),
        Err(Errno::CONNRESET | Errno::PIPE) => return Err(NoPacket::Closed),
        Err(error) => return Err(NoPacket::System(error.into())),
    };
    let (mut files, mut from) = (Vec::new(), None);
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(sent) => files.extend(sent),
            RecvAncillaryMessage::ScmCredentials(sender) => {
                let pid = sender.pid.as_raw_nonzero().get().unsigned_abs();
                from = Some(Sender { pid, uid: sender.uid.as_raw() });
            }
            _ => {}
        }
    }
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(violation("a packet that is too large"));
    }
    let packet = Packet::decode(&buffer[..received.bytes]).map_err(NoPacket::Violation)?;
    match (files.len() < packet.files(), &packet) {
        // The system could not install it: not the sender's fault.
        (true, Packet::Control(_)) if is_cut => {}
        (true, _) if is_cut => return Err(NoPacket::System(Errno::MFILE.into())),
        _ if is_cut || files.len() != packet.files() => {
            return Err(violation(format!("{} descriptors with {packet:?}", files.len())));
        }
        _ => {}
    }
    let Some(from) = from else {
        return Err(violation(format!("{packet:?} without its sender's process id")));
    };
    Ok(Received { packet, files, from })
}

fn violation(what: impl Into<String>) -> NoPacket {
    NoPacket::Violation(Violation::new(what))
}

/// Waits until one of `files` can be read, at most until `deadline`; says which can.
pub(crate) fn readable<const N: usize>(
    files: [Option<BorrowedFd<'_>>; N],
    deadline: Instant,
) -> io::Result<[bool; N]> {
    loop {
        let there = files.iter().flatten();
        let mut polled: Vec<_> =
            there.map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN)).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut polled, Some(&timespec(left))) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        let mut states = polled.iter().map(|file| !file.revents().is_empty());
        return Ok(files.map(|file| file.is_some() && states.next().unwrap_or(false)));
    }
}

/// `duration` as the system takes it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use transport_api::HostId;
    use transport_control::Message;

    use super::*;

    #[test]
    fn packets_sent_before_a_reset_are_received() {
        let (ours, theirs) = pair().expect("a pair of sockets");
        let leave = Packet::Control(Message::Leave);
        send(&ours, &Packet::Memory { host: HostId(0) }, &[ours.as_fd()]).expect("room");
        send(&theirs, &Packet::Rank { host: HostId(1), hosts: 2, threads: 1 }, &[]).expect("room");
        send(&theirs, &leave, &[]).expect("room");
        // The first packet is unread, so this resets the connection.
        drop(theirs);
        let received = [receive(&ours), receive(&ours)].map(|received| received.map(|r| r.packet));
        assert!(
            matches!(&received, [Ok(Packet::Rank { .. }), Ok(packet)] if *packet == leave),
            "{received:?}"
        );
        assert!(matches!(receive(&ours), Err(NoPacket::Closed)));
    }
}

//! [`Packet`]: what the processes of a rack send each other over their sockets, and its only
//! encoding.
//!
//! ```text
//!   | kind: u8 | fields, little-endian, in the order of the variant |
//! ```
//!
//! A packet is decoded whole or refused. Those of the handshake come first; then every packet is a
//! message of the control plane.

use transport_api::HostId;
use transport_control::{MESSAGE_BYTES, Message, Violation};

/// The version of these packets and of the layouts in shared memory.
pub(crate) const VERSION: u32 = 6;

/// Bytes of the largest packet.
pub(crate) const PACKET_BYTES: usize = 1 + MESSAGE_BYTES;

/// Descriptors that come with one packet, at most.
pub(crate) const MAX_FILES: usize = 64;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// A process that connects to the rendezvous says which host it is, and proves that it knows the
    /// secret.
    Join { host: HostId, token: [u8; 16] },
    /// The first packet in both directions between the leader and a child.
    Hello { version: u32, identity: [u8; 32] },
    /// The leader assigns a child its rank: which host it is.
    Rank { host: HostId, hosts: u32, threads: u32 },
    /// The leader hands a child its socket to another child; comes with the socket.
    Peer { host: HostId, pid: u32 },
    /// Both ends of a socket: comes with the sender's host memory.
    Memory { host: HostId },
    /// More of what wakes the sender's threads, in their order; comes with `count` sockets.
    Alarms { count: u32 },
    /// A message of the control plane; a region that is imported comes with its memory.
    Control(Message),
}

impl Packet {
    /// How many descriptors come with it.
    pub(crate) fn files(&self) -> usize {
        match self {
            Packet::Peer { .. }
            | Packet::Memory { .. }
            | Packet::Control(Message::Imported { .. }) => 1,
            Packet::Alarms { count } => *count as usize,
            _ => 0,
        }
    }

    /// The bytes of this packet, at most [`PACKET_BYTES`].
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(64);
        let mut put = |bytes: &[u8]| packet.extend_from_slice(bytes);
        match self {
            Packet::Join { host, token } => {
                put(b"j");
                put(&host.0.to_le_bytes());
                put(token);
            }
            Packet::Hello { version, identity } => {
                put(b"h");
                put(&version.to_le_bytes());
                put(identity);
            }
            Packet::Rank { host, hosts, threads } => {
                put(b"r");
                [host.0, *hosts, *threads].iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Packet::Peer { host, pid } => {
                put(b"p");
                [host.0, *pid].iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Packet::Memory { host } => {
                put(b"m");
                put(&host.0.to_le_bytes());
            }
            Packet::Alarms { count } => {
                put(b"a");
                put(&count.to_le_bytes());
            }
            Packet::Control(message) => {
                put(b"c");
                message.encode(&mut packet);
            }
        }
        packet
    }

    /// The packet that `bytes` encode.
    ///
    /// # Errors
    /// A [`Violation`] if `bytes` are not the encoding of a packet.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Packet, Violation> {
        if let Some((b'c', message)) = bytes.split_first() {
            return Message::decode(message).map(Packet::Control);
        }
        Self::decode_handshake(bytes).ok_or_else(|| {
            let head = &bytes[..bytes.len().min(16)];
            Violation::new(format!("a packet of {} bytes, {head:x?}..", bytes.len()))
        })
    }

    fn decode_handshake(bytes: &[u8]) -> Option<Packet> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let packet = match kind {
            b'j' => Packet::Join { host: HostId(fields.u32()?), token: fields.bytes()? },
            b'h' => {
                let version = fields.u32()?;
                Packet::Hello { version, identity: fields.bytes()? }
            }
            b'r' => {
                let host = HostId(fields.u32()?);
                Packet::Rank { host, hosts: fields.u32()?, threads: fields.u32()? }
            }
            b'p' => Packet::Peer { host: HostId(fields.u32()?), pid: fields.u32()? },
            b'm' => Packet::Memory { host: HostId(fields.u32()?) },
            b'a' => {
                let count = fields.u32()?;
                Packet::Alarms { count: (count as usize <= MAX_FILES).then_some(count)? }
            }
            _ => return None,
        };
        fields.0.is_empty().then_some(packet)
    }
}

/// The fields of a packet that are not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use transport_api::{RegionKey, Rights};
    use transport_control::{Descriptor, Opaque};

    use super::*;

    fn all() -> Vec<Packet> {
        let region =
            Descriptor { generation: 3, rights: Rights::READ, len: 1 << 40, opaque: Opaque::EMPTY };
        vec![
            Packet::Join { host: HostId(3), token: [9; 16] },
            Packet::Hello { version: 1, identity: [7; 32] },
            Packet::Rank { host: HostId(1), hosts: 2, threads: 3 },
            Packet::Peer { host: HostId(2), pid: 77 },
            Packet::Memory { host: HostId(9) },
            Packet::Alarms { count: MAX_FILES as u32 },
            Packet::Control(Message::Import { number: 1, key: RegionKey(2), timeout: 3 }),
            Packet::Control(Message::Imported { number: 5, region }),
            Packet::Control(Message::Leave),
        ]
    }

    #[test]
    fn packets_come_back_as_they_went_out() {
        let longest = Packet::Control(Message::GivenUp("x".repeat(MESSAGE_BYTES - 1)));
        assert_eq!(longest.encode().len(), PACKET_BYTES);
        for packet in all().into_iter().chain([longest]) {
            let bytes = packet.encode();
            assert!(bytes.len() <= PACKET_BYTES);
            assert_eq!(Packet::decode(&bytes), Ok(packet));
        }
    }

    #[test]
    fn a_packet_that_is_too_short_or_too_long_is_refused() {
        for packet in all().iter().map(Packet::encode) {
            assert!((0..packet.len()).all(|len| Packet::decode(&packet[..len]).is_err()));
            assert!(Packet::decode(&[&packet[..], &[0]].concat()).is_err());
        }
        assert!(Packet::decode(b"x").is_err());
        let many = Packet::Alarms { count: MAX_FILES as u32 + 1 };
        assert!(Packet::decode(&many.encode()).is_err(), "more than a packet has room for");
        let mut rights = all()[7].encode();
        rights[14] = 8;
        assert!(Packet::decode(&rights).is_err(), "rights that do not exist");
    }
}

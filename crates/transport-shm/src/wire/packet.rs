//! What the processes of a rack say to each other over their sockets: packets of a kind byte and
//! little-endian fields, so that every packet is whole or refused.

use transport_api::{HostId, RegionKey, Rights};

/// The version of these packets and of the layouts in shared memory.
pub(crate) const VERSION: u32 = 3;

/// Bytes of the largest packet.
pub(crate) const LARGEST: usize = 64;

/// Descriptors that come with one packet, at most.
pub(crate) const MOST_FILES: usize = 64;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Whoever comes to where processes meet says which host it is, and what only they know.
    Knock { host: HostId, word: [u8; 16] },
    /// The first packet in both directions between the leader and a child.
    Hello { version: u32, identity: [u8; 32] },
    /// The leader tells a child which host it is.
    Seat { host: HostId, hosts: u32, threads: u32 },
    /// The leader hands a child its socket to another child; comes with the socket.
    Link { host: HostId, pid: u32 },
    /// Both ends of a link: comes with the sender's control memory.
    Greeting { host: HostId },
    /// More of what wakes the sender's threads, in their order; comes with `count` sockets.
    Alarms { count: u32 },
    /// Asks for a region, waiting up to `timeout` milliseconds for it to be exported.
    Import { id: u64, key: RegionKey, timeout: u64 },
    /// The answer to `Import`: nothing, or a region; comes with the region's memory, unless the
    /// importer has no rights on it.
    Export { id: u64, region: Option<RegionInfo> },
    /// The sender leaves the rack.
    Goodbye,
}

/// A region, in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionInfo {
    pub(crate) rights: Rights,
    pub(crate) generation: u32,
    pub(crate) len: u64,
}

impl Message {
    /// How many descriptors come with it.
    pub(crate) fn files(&self) -> usize {
        match self {
            Message::Link { .. } | Message::Greeting { .. } => 1,
            Message::Export { region, .. } => {
                region.is_some_and(|region| region.rights != Rights::NONE).into()
            }
            Message::Alarms { count } => *count as usize,
            _ => 0,
        }
    }

    /// The packet of this message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(LARGEST);
        let mut put = |bytes: &[u8]| packet.extend_from_slice(bytes);
        match self {
            Message::Knock { host, word } => {
                put(b"k");
                put(&host.0.to_le_bytes());
                put(word);
            }
            Message::Hello { version, identity } => {
                put(b"h");
                put(&version.to_le_bytes());
                put(identity);
            }
            Message::Seat { host, hosts, threads } => {
                put(b"s");
                [host.0, *hosts, *threads].iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Message::Link { host, pid } => {
                put(b"l");
                [host.0, *pid].iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Message::Greeting { host } => {
                put(b"g");
                put(&host.0.to_le_bytes());
            }
            Message::Alarms { count } => {
                put(b"a");
                put(&count.to_le_bytes());
            }
            Message::Import { id, key, timeout } => {
                put(b"i");
                [*id, key.0, *timeout].iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Message::Export { id, region: None } => {
                put(b"n");
                put(&id.to_le_bytes());
            }
            Message::Export { id, region: Some(RegionInfo { rights, generation, len }) } => {
                put(b"e");
                put(&id.to_le_bytes());
                put(&[rights.bits()]);
                put(&generation.to_le_bytes());
                put(&len.to_le_bytes());
            }
            Message::Goodbye => put(b"b"),
        }
        packet
    }

    /// The message of a packet, if it is one.
    pub(crate) fn decode(packet: &[u8]) -> Option<Message> {
        let (kind, rest) = packet.split_first()?;
        let mut fields = Fields(rest);
        let message = match kind {
            b'k' => Message::Knock { host: HostId(fields.u32()?), word: fields.bytes()? },
            b'h' => {
                let version = fields.u32()?;
                Message::Hello { version, identity: fields.bytes()? }
            }
            b's' => {
                let host = HostId(fields.u32()?);
                Message::Seat { host, hosts: fields.u32()?, threads: fields.u32()? }
            }
            b'l' => Message::Link { host: HostId(fields.u32()?), pid: fields.u32()? },
            b'g' => Message::Greeting { host: HostId(fields.u32()?) },
            b'a' => {
                let count = fields.u32()?;
                Message::Alarms { count: (count as usize <= MOST_FILES).then_some(count)? }
            }
            b'i' => {
                let (id, key) = (fields.u64()?, RegionKey(fields.u64()?));
                Message::Import { id, key, timeout: fields.u64()? }
            }
            b'n' => Message::Export { id: fields.u64()?, region: None },
            b'e' => {
                let id = fields.u64()?;
                let rights = Rights::from_bits(fields.bytes::<1>()?[0])?;
                let (generation, len) = (fields.u32()?, fields.u64()?);
                Message::Export { id, region: Some(RegionInfo { rights, generation, len }) }
            }
            b'b' => Message::Goodbye,
            _ => return None,
        };
        fields.0.is_empty().then_some(message)
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

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let region = RegionInfo { rights: Rights::READ, generation: 3, len: u64::MAX };
        vec![
            Message::Knock { host: HostId(3), word: [9; 16] },
            Message::Hello { version: 1, identity: [7; 32] },
            Message::Seat { host: HostId(1), hosts: 2, threads: 3 },
            Message::Link { host: HostId(2), pid: 77 },
            Message::Greeting { host: HostId(9) },
            Message::Alarms { count: MOST_FILES as u32 },
            Message::Import { id: 1, key: RegionKey(2), timeout: 3 },
            Message::Export { id: 4, region: None },
            Message::Export { id: 5, region: Some(region) },
            Message::Goodbye,
        ]
    }

    #[test]
    fn packets_come_back_as_they_went_out() {
        for message in all() {
            let packet = message.encode();
            assert!(packet.len() <= LARGEST);
            assert_eq!(Message::decode(&packet), Some(message));
        }
    }

    #[test]
    fn a_packet_that_is_too_short_or_too_long_is_refused() {
        for packet in all().iter().map(Message::encode) {
            assert!((0..packet.len()).all(|len| Message::decode(&packet[..len]).is_none()));
            assert_eq!(Message::decode(&[&packet[..], &[0]].concat()), None);
        }
        assert_eq!(Message::decode(b"x"), None);
        let many = Message::Alarms { count: MOST_FILES as u32 + 1 };
        assert_eq!(Message::decode(&many.encode()), None, "more than a packet has room for");
        let mut rights = all()[8].encode();
        rights[9] = 8;
        assert_eq!(Message::decode(&rights), None, "rights that do not exist");
    }
}

//! [`Message`]: what the control planes of two hosts send each other, and its only encoding.
//!
//! ```text
//!   | kind: u8 | fields, little-endian, in the order of the variant |
//! ```
//!
//! A message is decoded whole or refused: nothing may be missing or left over, and every field is
//! checked. Descriptors of files that belong to a message (shared memory) travel beside it.

use std::fmt;

use primitive::limits::{OPAQUE_BYTES, REASON_BYTES};
use transport_api::{RegionKey, Rights};

use crate::violation::Violation;

/// Bytes of the longest message.
pub const MESSAGE_BYTES: usize = 1 + REASON_BYTES;

/// What the control plane of one host sends that of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender is alive.
    Heartbeat,
    /// Asks for the region that the receiver exports under `key`, for up to `timeout` milliseconds.
    /// The receiver answers with [`Imported`](Self::Imported) or [`Refused`](Self::Refused).
    Import {
        /// Names the request among those of the sender.
        number: u64,
        /// The key of the region.
        key: RegionKey,
        /// Milliseconds for which the request waits for an export.
        timeout: u64,
    },
    /// The sender of import `number` no longer waits for it. The receiver still answers it.
    CancelImport {
        /// The number of the import.
        number: u64,
    },
    /// Answers an import: the sender exports the region.
    Imported {
        /// The number of the import.
        number: u64,
        /// The region.
        region: Descriptor,
    },
    /// Answers an import: the requester does not get the region.
    Refused {
        /// The number of the import.
        number: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Revokes one generation of a region that the sender exported. The receiver answers with
    /// [`Quiesced`](Self::Quiesced).
    Revoke {
        /// Names the request among those of the sender.
        number: u64,
        /// The key of the region.
        key: RegionKey,
        /// The generation that is revoked.
        generation: u32,
    },
    /// Answers a revocation: the sender uses the region no more, nor is any use of it under way.
    Quiesced {
        /// The number of the revocation.
        number: u64,
    },
    /// The sender leaves the rack: it starts nothing more.
    Leave,
    /// The sender has seen that the receiver left, and everything that the receiver sent before.
    LeaveSeen,
    /// The sender counts the receiver as lost, for this reason; nothing follows.
    GivenUp(String),
}

/// Why an owner refuses an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It exports no region under the key, nor did it within the timeout of the import.
    Unknown,
    /// It exports the region, but not to the requester.
    Denied,
    /// The requester has cancelled the import.
    Cancelled,
}

/// A region as its owner describes it to one importer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// How often the key had been exported before.
    pub generation: u32,
    /// What the importer may do to the region.
    pub rights: Rights,
    /// Bytes of the region.
    pub len: u64,
    /// What the transport of the importer needs beside that.
    pub opaque: Opaque,
}

/// The part of a descriptor that only the transport understands: none over TCP, address and remote
/// key over RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Opaque {
    len: u8,
    bytes: [u8; OPAQUE_BYTES],
}

impl Opaque {
    /// No bytes.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; OPAQUE_BYTES] };

    /// These bytes; `None` if there are more than [`OPAQUE_BYTES`].
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; OPAQUE_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { len: from.len() as u8, bytes })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Opaque {
    /// The length only: the bytes may hold a remote key, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl Message {
    /// Appends the encoding of this message, at most [`MESSAGE_BYTES`]. A reason that is longer
    /// than [`REASON_BYTES`] is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        match self {
            Message::Heartbeat => put(&[1]),
            Message::Import { number, key, timeout } => {
                put(&[2]);
                [*number, key.0, *timeout].iter().for_each(|word| put(&word.to_le_bytes()));
            }
            Message::CancelImport { number } => {
                put(&[3]);
                put(&number.to_le_bytes());
            }
            Message::Imported { number, region } => {
                put(&[4]);
                put(&number.to_le_bytes());
                put(&region.generation.to_le_bytes());
                put(&[region.rights.bits()]);
                put(&region.len.to_le_bytes());
                put(&[region.opaque.len]);
                put(region.opaque.bytes());
            }
            Message::Refused { number, refusal } => {
                put(&[5]);
                put(&number.to_le_bytes());
                put(&[refusal.code()]);
            }
            Message::Revoke { number, key, generation } => {
                put(&[6]);
                [*number, key.0].iter().for_each(|word| put(&word.to_le_bytes()));
                put(&generation.to_le_bytes());
            }
            Message::Quiesced { number } => {
                put(&[7]);
                put(&number.to_le_bytes());
            }
            Message::Leave => put(&[8]),
            Message::LeaveSeen => put(&[9]),
            Message::GivenUp(reason) => {
                put(&[10]);
                put(&reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES)]);
            }
        }
    }

    /// The message that `bytes` encode.
    ///
    /// # Errors
    /// A [`Violation`] if `bytes` are not the encoding of a message.
    pub fn decode(bytes: &[u8]) -> Result<Message, Violation> {
        let mut fields = Fields(bytes);
        let decoded = fields.message().filter(|_| fields.0.is_empty());
        decoded.ok_or_else(|| {
            let head = &bytes[..bytes.len().min(8)];
            Violation::new(format!("a control message of {} bytes, {head:?}..", bytes.len()))
        })
    }
}

impl Refusal {
    fn code(self) -> u8 {
        match self {
            Refusal::Unknown => 0,
            Refusal::Denied => 1,
            Refusal::Cancelled => 2,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Refusal::Unknown, Refusal::Denied, Refusal::Cancelled].get(usize::from(code)).copied()
    }
}

/// The fields of a message that are not decoded yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn message(&mut self) -> Option<Message> {
        Some(match self.byte()? {
            1 => Message::Heartbeat,
            2 => {
                let (number, key) = (self.word()?, RegionKey(self.word()?));
                Message::Import { number, key, timeout: self.word()? }
            }
            3 => Message::CancelImport { number: self.word()? },
            4 => Message::Imported { number: self.word()?, region: self.descriptor()? },
            5 => {
                let number = self.word()?;
                Message::Refused { number, refusal: Refusal::from_code(self.byte()?)? }
            }
            6 => {
                let (number, key) = (self.word()?, RegionKey(self.word()?));
                Message::Revoke { number, key, generation: self.half()? }
            }
            7 => Message::Quiesced { number: self.word()? },
            8 => Message::Leave,
            9 => Message::LeaveSeen,
            10 if self.0.len() <= REASON_BYTES => {
                let reason = std::str::from_utf8(self.take(self.0.len())?).ok()?;
                Message::GivenUp(reason.into())
            }
            _ => return None,
        })
    }

    fn descriptor(&mut self) -> Option<Descriptor> {
        let (generation, rights) = (self.half()?, Rights::from_bits(self.byte()?)?);
        let (len, opaque) = (self.word()?, self.byte()?);
        let opaque = Opaque::new(self.take(opaque.into())?)?;
        // No region is longer than memory can be.
        isize::try_from(len).ok().map(|_| Descriptor { generation, rights, len, opaque })
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn half(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn word(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn encoded(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    pub(crate) fn any_message() -> impl Strategy<Value = Message> {
        let word = any::<u64>;
        let opaque = vec(any::<u8>(), 0..=OPAQUE_BYTES);
        let region = (any::<u32>(), 0..=Rights::ALL.bits(), 0..i64::MAX as u64, opaque);
        let region = region.prop_map(|(generation, rights, len, opaque)| Descriptor {
            generation,
            rights: Rights::from_bits(rights).expect("rights"),
            len,
            opaque: Opaque::new(&opaque).expect("few bytes"),
        });
        let refusal =
            prop_oneof![Just(Refusal::Unknown), Just(Refusal::Denied), Just(Refusal::Cancelled),];
        prop_oneof![
            Just(Message::Heartbeat),
            (word(), word(), word()).prop_map(|(number, key, timeout)| Message::Import {
                number,
                key: RegionKey(key),
                timeout
            }),
            word().prop_map(|number| Message::CancelImport { number }),
            (word(), region).prop_map(|(number, region)| Message::Imported { number, region }),
            (word(), refusal).prop_map(|(number, refusal)| Message::Refused { number, refusal }),
            (word(), word(), any::<u32>()).prop_map(|(number, key, generation)| {
                Message::Revoke { number, key: RegionKey(key), generation }
            }),
            word().prop_map(|number| Message::Quiesced { number }),
            Just(Message::Leave),
            Just(Message::LeaveSeen),
            "\\PC{0,100}".prop_map(Message::GivenUp),
        ]
    }

    proptest! {
        #[test]
        fn messages_are_decoded_as_they_were_encoded(message in any_message()) {
            let bytes = encoded(&message);
            prop_assert!(bytes.len() <= MESSAGE_BYTES);
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }

        #[test]
        fn a_message_is_whole_or_refused(message in any_message()) {
            let bytes = encoded(&message);
            // A reason ends where the message ends.
            if !matches!(message, Message::GivenUp(_)) {
                for len in 0..bytes.len() {
                    prop_assert!(Message::decode(&bytes[..len]).is_err(), "{} bytes", len);
                }
                prop_assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err());
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(kind in 0u8..12, bytes in vec(any::<u8>(), 0..80)) {
            let bytes = [&[kind], &bytes[..]].concat();
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes, "a message has two encodings");
            }
        }
    }

    #[test]
    fn a_long_reason_is_cut_and_a_longer_one_refused() {
        let bytes = encoded(&Message::GivenUp("ä".repeat(REASON_BYTES)));
        assert!(bytes.len() <= MESSAGE_BYTES && Message::decode(&bytes).is_ok());
        let long = [&[10], &[b'a'; REASON_BYTES + 1][..]].concat();
        assert!(Message::decode(&long).is_err());
        assert!(Message::decode(&[10, 0xff]).is_err(), "no text");
    }

    #[test]
    fn a_descriptor_shows_no_secret() {
        let opaque = Opaque::new(&[0xab; 12]).expect("few bytes");
        assert_eq!(format!("{opaque:?}"), "12 bytes");
        assert_eq!(Opaque::new(&[0; OPAQUE_BYTES + 1]), None);
    }
}

//! [`Message`]: what the service threads of two hosts send each other, and its encoding.
//!
//! Messages are bulk payloads of the carrier, whose connections are authenticated and encrypted:
//! remote keys are secrets. Numbers are little-endian; the first byte is the kind of the message, and
//! a decoder refuses missing or extra bytes.

use crate::{memory::descriptor::RegionDescriptor, verbs::Endpoint};
use primitive::limits::THREADS_PER_HOST;
use transport_api::{RegionKey, Rights, ThreadId};

/// Bytes of the longest text that is read.
const TEXT: usize = 1024;

/// What one service thread sends another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The addresses of the queue pairs to the receiver, by thread, and how many READs and atomics
    /// each of them serves at a time. The receiver's threads write to `sleep_flags` whether they
    /// sleep, and read from `payloads` what does not fit a slot, unless the carrier carries that.
    Hello {
        responder_resources: u8,
        sleep_flags: RegionDescriptor,
        payloads: Option<RegionDescriptor>,
        endpoints: Vec<Endpoint>,
    },
    /// The sender's queue pairs towards the receiver are connected.
    Ready,
    /// Asks for a region, for up to `timeout` milliseconds.
    Import { number: u64, key: RegionKey, timeout: u64 },
    /// The answer; without a region if no such region is exported.
    Imported { number: u64, region: Option<RegionDescriptor> },
    /// Revokes that generation of the region.
    Revoke { number: u64, key: RegionKey, generation: u32 },
    /// The sender no longer uses it, and no operation on it is in flight.
    Quiesced { number: u64 },
    /// The sender counts the receiver as lost, for this reason.
    GivenUp(String),
}

impl Message {
    /// The message as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        match self {
            Message::Hello { responder_resources, sleep_flags, payloads, endpoints } => {
                put(&[1, *responder_resources]);
                sleep_flags.put(&mut put);
                RegionDescriptor::put_any(payloads.as_ref(), &mut put);
                put(&(endpoints.len() as u16).to_le_bytes());
                for end in endpoints {
                    put(&end.gid);
                    put(&end.lid.to_le_bytes());
                    put(&[end.mtu]);
                    put(&end.qp.to_le_bytes());
                    put(&end.first.to_le_bytes());
                }
            }
            Message::Ready => put(&[2]),
            Message::Import { number, key, timeout } => {
                put(&[3]);
                [*number, key.0, *timeout].iter().for_each(|word| put(&word.to_le_bytes()));
            }
            Message::Imported { number, region } => {
                put(&[4]);
                put(&number.to_le_bytes());
                RegionDescriptor::put_any(region.as_ref(), &mut put);
            }
            Message::Revoke { number, key, generation } => {
                put(&[5]);
                put(&number.to_le_bytes());
                put(&key.0.to_le_bytes());
                put(&generation.to_le_bytes());
            }
            Message::Quiesced { number } => {
                put(&[6]);
                put(&number.to_le_bytes());
            }
            Message::GivenUp(why) => {
                put(&[7]);
                put(&why.as_bytes()[..why.floor_char_boundary(TEXT)]);
            }
        }
        out
    }

    /// Decodes what `from` sent to the service thread. Only the service thread of a peer may, which is
    /// the carrier's last thread: its number is that of runtime threads.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); also if `from` is another thread.
    pub(crate) fn receive(from: ThreadId, threads: u32, bytes: &[u8]) -> Result<Message, String> {
        if from.thread != threads {
            return Err(format!("{} bytes from {from} to the service thread", bytes.len()));
        }
        Message::decode(bytes)
    }

    /// The message that `bytes` encode.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, String> {
        let none = || format!("an invalid message of {} bytes, {:?}..", bytes.len(), head(bytes));
        let mut rest = Rest(bytes);
        let message = rest.message().ok_or_else(none)?;
        if rest.0.is_empty() { Ok(message) } else { Err(none()) }
    }
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(8)]
}

/// The bytes that are not decoded yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn half(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn word32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn word(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn message(&mut self) -> Option<Message> {
        Some(match self.byte()? {
            1 => {
                let (responder_resources, sleep_flags) = (self.byte()?, self.region()?);
                let (payloads, count) = (self.optional_region()?, self.half()?);
                if usize::from(count) > THREADS_PER_HOST {
                    return None;
                }
                let endpoints = (0..count).map(|_| self.endpoint()).collect::<Option<_>>()?;
                Message::Hello { responder_resources, sleep_flags, payloads, endpoints }
            }
            2 => Message::Ready,
            3 => Message::Import {
                number: self.word()?,
                key: RegionKey(self.word()?),
                timeout: self.word()?,
            },
            4 => Message::Imported { number: self.word()?, region: self.optional_region()? },
            5 => Message::Revoke {
                number: self.word()?,
                key: RegionKey(self.word()?),
                generation: self.word32()?,
            },
            6 => Message::Quiesced { number: self.word()? },
            7 if self.0.len() <= TEXT => {
                let why = String::from_utf8_lossy(std::mem::take(&mut self.0));
                Message::GivenUp(why.into_owned())
            }
            _ => return None,
        })
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let end = Endpoint {
            gid: self.take()?,
            lid: self.half()?,
            mtu: self.byte()?,
            qp: self.word32()?,
            first: self.word32()?,
        };
        let is_valid = (1..=5).contains(&end.mtu) && end.qp < 1 << 24 && end.first < 1 << 24;
        is_valid.then_some(end)
    }

    /// A region, if there is one.
    #[allow(clippy::option_option, reason = "no region is a valid answer, no answer is invalid")]
    fn optional_region(&mut self) -> Option<Option<RegionDescriptor>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.region()?)),
            _ => None,
        }
    }

    fn region(&mut self) -> Option<RegionDescriptor> {
        let descriptor = RegionDescriptor {
            rights: Rights::from_bits(self.byte()?)?,
            generation: self.word32()?,
            len: self.word()?,
            address: self.word()?,
            remote_key: self.word32()?,
        };
        // Memory cannot wrap around.
        descriptor.address.checked_add(descriptor.len).map(|_| descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let end = Endpoint { gid: [7; 16], lid: 3, mtu: 3, qp: 0x12_3456, first: 0xab_cdef };
        let region = RegionDescriptor {
            rights: Rights::READ | Rights::ATOMIC,
            generation: 4,
            len: 1 << 40,
            address: 0x7fff_0000_1000,
            remote_key: 99,
        };
        let (number, key) = (5, RegionKey(u64::MAX));
        vec![
            Message::Hello {
                responder_resources: 16,
                sleep_flags: region,
                payloads: None,
                endpoints: vec![end; 3],
            },
            Message::Hello {
                responder_resources: 0,
                sleep_flags: region,
                payloads: Some(region),
                endpoints: Vec::new(),
            },
            Message::Ready,
            Message::Import { number, key, timeout: 1000 },
            Message::Imported { number, region: Some(region) },
            Message::Imported { number, region: None },
            Message::Revoke { number, key, generation: 2 },
            Message::Quiesced { number },
            Message::GivenUp("the link is down".into()),
        ]
    }

    #[test]
    fn messages_are_decoded_as_they_were_encoded() {
        for message in all() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn only_service_threads_may_send() {
        let from = |thread| ThreadId { host: transport_api::HostId(1), thread };
        let bytes = Message::Ready.encode();
        assert_eq!(Message::receive(from(2), 2, &bytes), Ok(Message::Ready));
        for thread in [0, 1, 3] {
            let refused = Message::receive(from(thread), 2, &bytes).expect_err("another thread");
            assert!(refused.contains(&from(thread).to_string()), "{refused}");
        }
    }

    #[test]
    fn a_region_does_not_wrap_around() {
        let descriptor = |address, len| RegionDescriptor {
            rights: Rights::ALL,
            generation: 0,
            len,
            address,
            remote_key: 1,
        };
        let decoded = |region| {
            Message::decode(&Message::Imported { number: 1, region: Some(region) }.encode())
        };
        assert!(decoded(descriptor(u64::MAX - 8, 8)).is_ok());
        assert!(decoded(descriptor(u64::MAX - 8, 9)).is_err());
        assert!(decoded(descriptor(1, u64::MAX)).is_err());
        let (fits, wraps) = (descriptor(4096, 64), descriptor(u64::MAX - 8, 9));
        for (sleep_flags, payloads) in [(wraps, None), (wraps, Some(fits)), (fits, Some(wraps))] {
            let hello = Message::Hello {
                responder_resources: 4,
                sleep_flags,
                payloads,
                endpoints: Vec::new(),
            };
            assert!(Message::decode(&hello.encode()).is_err(), "{hello:?}");
        }
    }

    #[test]
    fn a_message_is_whole_or_refused() {
        // All but the text, which endpoints where it endpoints.
        for message in all().split_last().unwrap().1 {
            let bytes = message.encode();
            for len in 0..bytes.len() {
                assert!(Message::decode(&bytes[..len]).is_err(), "{len} bytes of {message:?}");
            }
            assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err(), "{message:?} and more");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let decoded = Message::decode(&bytes);
            if let Ok(message) = decoded && !matches!(message, Message::GivenUp(_)) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}

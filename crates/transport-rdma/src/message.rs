//! What the service threads of two hosts say to each other, as bytes.
//!
//! It travels as bulk payloads of the connections that join the hosts otherwise, which are
//! authenticated and encrypted: remote keys are secrets. All numbers are little-endian; the first
//! byte says what a message is, and nothing may be missing or left over.

use crate::verbs::{Endpoint, Mr};
use primitive::limits::THREADS_PER_HOST;
use transport_api::{Namespace, RegionKey, Rights, Tag, ThreadId};

/// What messages of service threads travel as.
pub(crate) const TAG: Tag = Tag::new(Namespace::TRANSPORT, 0);

/// Bytes of the longest text that is read.
const TEXT: usize = 1024;

/// A region as its owner describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) rights: Rights,
    pub(crate) generation: u32,
    pub(crate) len: u64,
    /// Its first byte, as the owner's device knows it.
    pub(crate) address: u64,
    pub(crate) remote_key: u32,
}

impl Told {
    /// All of `mr`, to which peers have `rights` until the host ends.
    pub(crate) fn of(mr: &Mr, rights: Rights) -> Self {
        let (address, remote_key) = (mr.address(), mr.remote_key());
        Told { rights, generation: 0, len: mr.memory().len() as u64, address, remote_key }
    }

    fn put_any(region: Option<&Told>, put: &mut impl FnMut(&[u8])) {
        put(&[region.is_some().into()]);
        if let Some(region) = region {
            region.put(put);
        }
    }

    fn put(&self, put: &mut impl FnMut(&[u8])) {
        put(&[self.rights.bits()]);
        put(&self.generation.to_le_bytes());
        put(&self.len.to_le_bytes());
        put(&self.address.to_le_bytes());
        put(&self.remote_key.to_le_bytes());
    }
}

/// What one service thread says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// How the queue pairs towards the receiver can be reached, by thread; and how many READs and
    /// atomics each of them answers at a time. In `row` the receiver's threads say whether they
    /// sleep, and from `payloads` they fetch what has no room in a slot, unless the carrier has it.
    Hello { answering: u8, row: Told, payloads: Option<Told>, ends: Vec<Endpoint> },
    /// The sender's queue pairs towards the receiver are connected.
    Ready,
    /// Asks for a region, for so many milliseconds.
    Ask { number: u64, key: RegionKey, timeout: u64 },
    /// The answer; without a region, there is none.
    Told { number: u64, region: Option<Told> },
    /// That generation of the region must not be used any more.
    Revoke { number: u64, key: RegionKey, generation: u32 },
    /// And it is not, nor is any use of it under way.
    Forgotten { number: u64 },
    /// The sender has given the receiver up, and why.
    GivenUp(String),
}

impl Message {
    /// The message as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        match self {
            Message::Hello { answering, row, payloads, ends } => {
                put(&[1, *answering]);
                row.put(&mut put);
                Told::put_any(payloads.as_ref(), &mut put);
                put(&(ends.len() as u16).to_le_bytes());
                for end in ends {
                    put(&end.gid);
                    put(&end.lid.to_le_bytes());
                    put(&[end.mtu]);
                    put(&end.qp.to_le_bytes());
                    put(&end.first.to_le_bytes());
                }
            }
            Message::Ready => put(&[2]),
            Message::Ask { number, key, timeout } => {
                put(&[3]);
                [*number, key.0, *timeout].iter().for_each(|word| put(&word.to_le_bytes()));
            }
            Message::Told { number, region } => {
                put(&[4]);
                put(&number.to_le_bytes());
                Told::put_any(region.as_ref(), &mut put);
            }
            Message::Revoke { number, key, generation } => {
                put(&[5]);
                put(&number.to_le_bytes());
                put(&key.0.to_le_bytes());
                put(&generation.to_le_bytes());
            }
            Message::Forgotten { number } => {
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

    /// What the service thread of a peer says, among hosts with so many runtime threads: it is the
    /// carrier's last thread, and nobody else has anything to say to the service thread.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); also if `from` is another thread.
    pub(crate) fn heard(
        from: ThreadId,
        threads: u32,
        tag: Tag,
        bytes: &[u8],
    ) -> Result<Message, String> {
        if from.thread != threads || tag != TAG {
            let len = bytes.len();
            return Err(format!("{len} bytes of {from} with tag {tag:?} for the service thread"));
        }
        Message::decode(bytes)
    }

    /// The message that `bytes` are.
    ///
    /// # Errors
    /// What is wrong, in words, when they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, String> {
        let none = || format!("a message of {} bytes that begins {:?}", bytes.len(), head(bytes));
        let mut rest = Rest(bytes);
        let message = rest.message().ok_or_else(none)?;
        if rest.0.is_empty() { Ok(message) } else { Err(none()) }
    }
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(8)]
}

/// What has not been read yet.
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
                let (answering, row) = (self.byte()?, self.told()?);
                let (payloads, count) = (self.any_told()?, self.half()?);
                if usize::from(count) > THREADS_PER_HOST {
                    return None;
                }
                let ends = (0..count).map(|_| self.endpoint()).collect::<Option<_>>()?;
                Message::Hello { answering, row, payloads, ends }
            }
            2 => Message::Ready,
            3 => Message::Ask {
                number: self.word()?,
                key: RegionKey(self.word()?),
                timeout: self.word()?,
            },
            4 => Message::Told { number: self.word()?, region: self.any_told()? },
            5 => Message::Revoke {
                number: self.word()?,
                key: RegionKey(self.word()?),
                generation: self.word32()?,
            },
            6 => Message::Forgotten { number: self.word()? },
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
    #[allow(clippy::option_option, reason = "no region is a good answer, no answer is not")]
    fn any_told(&mut self) -> Option<Option<Told>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.told()?)),
            _ => None,
        }
    }

    fn told(&mut self) -> Option<Told> {
        let told = Told {
            rights: Rights::from_bits(self.byte()?)?,
            generation: self.word32()?,
            len: self.word()?,
            address: self.word()?,
            remote_key: self.word32()?,
        };
        // No memory goes on behind the last address.
        told.address.checked_add(told.len).map(|_| told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let end = Endpoint { gid: [7; 16], lid: 3, mtu: 3, qp: 0x12_3456, first: 0xab_cdef };
        let region = Told {
            rights: Rights::READ | Rights::ATOMIC,
            generation: 4,
            len: 1 << 40,
            address: 0x7fff_0000_1000,
            remote_key: 99,
        };
        let (number, key) = (5, RegionKey(u64::MAX));
        vec![
            Message::Hello { answering: 16, row: region, payloads: None, ends: vec![end; 3] },
            Message::Hello { answering: 0, row: region, payloads: Some(region), ends: Vec::new() },
            Message::Ready,
            Message::Ask { number, key, timeout: 1000 },
            Message::Told { number, region: Some(region) },
            Message::Told { number, region: None },
            Message::Revoke { number, key, generation: 2 },
            Message::Forgotten { number },
            Message::GivenUp("the link is down".into()),
        ]
    }

    #[test]
    fn messages_survive_the_way() {
        for message in all() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn only_service_threads_are_heard() {
        let from = |thread| ThreadId { host: transport_api::HostId(1), thread };
        let bytes = Message::Ready.encode();
        assert_eq!(Message::heard(from(2), 2, TAG, &bytes), Ok(Message::Ready));
        assert!(Message::heard(from(2), 2, Tag(0), &bytes).is_err(), "another tag");
        for thread in [0, 1, 3] {
            let refused = Message::heard(from(thread), 2, TAG, &bytes).expect_err("another thread");
            assert!(refused.contains(&from(thread).to_string()), "{refused}");
        }
    }

    #[test]
    fn a_region_ends_where_addresses_do() {
        let told =
            |address, len| Told { rights: Rights::ALL, generation: 0, len, address, remote_key: 1 };
        let decoded =
            |region| Message::decode(&Message::Told { number: 1, region: Some(region) }.encode());
        assert!(decoded(told(u64::MAX - 8, 8)).is_ok());
        assert!(decoded(told(u64::MAX - 8, 9)).is_err());
        assert!(decoded(told(1, u64::MAX)).is_err());
        let (fits, wraps) = (told(4096, 64), told(u64::MAX - 8, 9));
        for (row, payloads) in [(wraps, None), (wraps, Some(fits)), (fits, Some(wraps))] {
            let hello = Message::Hello { answering: 4, row, payloads, ends: Vec::new() };
            assert!(Message::decode(&hello.encode()).is_err(), "{hello:?}");
        }
    }

    #[test]
    fn a_message_is_whole_or_none() {
        // All but the text, which ends where it ends.
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
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let decoded = Message::decode(&bytes);
            if let Ok(message) = decoded && !matches!(message, Message::GivenUp(_)) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}

//! [`Message`]: what the service threads of two hosts send each other, and its encoding.
//!
//! Messages are bulk payloads of the carrier, whose connections are authenticated and encrypted:
//! remote keys are secrets. Numbers are little-endian; the first byte is the kind of the message, and
//! a decoder refuses missing or extra bytes.

use std::fmt;

use primitive::limits::{REASON_BYTES, THREADS_PER_HOST};
use transport_api::{Rights, Tag, ThreadId};

use crate::address::{Endpoint, MemoryDescriptor};

/// The tag of messages at the carrier.
pub const TAG: Tag = Tag(0);

/// Bytes of a message of the control plane, at most: its kind, and the longest reason.
pub const CONTROL_BYTES: usize = 1 + REASON_BYTES;

/// What one service thread sends another. Printed, it shows neither remote keys nor what the control
/// plane says.
///
/// ```
/// use gossamer_rdma_protocol::{Endpoint, MemoryDescriptor, Message};
/// use transport_api::Rights;
///
/// let hello = |mtu| Message::Hello {
///     responder_resources: 16,
///     sleep_flags: MemoryDescriptor { rights: Rights::READ, len: 8, address: 4096, remote_key: 1 },
///     payloads: None,
///     endpoints: vec![Endpoint { gid: [0; 16], lid: 0, mtu, qp: 17, first: 1 }],
/// };
/// assert_eq!(Message::decode(&hello(3).encode()), Ok(hello(3)));
/// assert!(Message::decode(&hello(6).encode()).is_err(), "no queue pair has this MTU");
/// assert!(Message::decode(&[9]).is_err(), "no kind of message");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Message {
    /// Where to reach the sender: its queue pairs, and its memory for sleep flags and payloads.
    Hello {
        /// READs and atomics that each queue pair serves at a time, at least 1.
        responder_resources: u8,
        /// Where the receiver's threads write whether they sleep.
        sleep_flags: MemoryDescriptor,
        /// Where the receiver reads payloads, unless the carrier carries them.
        payloads: Option<MemoryDescriptor>,
        /// The sender's queue pairs to the receiver, by thread, of which a host has at most 256.
        endpoints: Vec<Endpoint>,
    },
    /// The sender's queue pairs to the receiver are connected.
    Ready,
    /// A message of the control plane, encoded as `transport-control` does: at most [`CONTROL_BYTES`].
    Control(Vec<u8>),
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Hello { endpoints, .. } => write!(f, "Hello of {} threads", endpoints.len()),
            Message::Ready => f.write_str("Ready"),
            Message::Control(bytes) => write!(f, "Control of {} bytes", bytes.len()),
        }
    }
}

impl Message {
    /// The message as bytes.
    ///
    /// # Panics
    /// If a peer would refuse them: more endpoints than a host may have threads, or a longer message of
    /// the control plane than [`CONTROL_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        match self {
            Message::Hello { responder_resources, sleep_flags, payloads, endpoints } => {
                assert!(endpoints.len() <= THREADS_PER_HOST, "{self:?}");
                put(&[1, *responder_resources]);
                put_memory(sleep_flags, &mut put);
                put(&[payloads.is_some().into()]);
                payloads.iter().for_each(|payloads| put_memory(payloads, &mut put));
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
            Message::Control(bytes) => {
                assert!(bytes.len() <= CONTROL_BYTES, "{self:?}");
                put(&[3]);
                put(bytes);
            }
        }
        out
    }

    /// Decodes what `from` sent to the service thread with `tag`. Only the service thread of a peer
    /// may, which is the carrier's last thread: its number is that of runtime threads.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); also if `from` is another thread, or the tag another one.
    pub fn receive(
        (from, tag): (ThreadId, Tag),
        threads: u32,
        bytes: &[u8],
    ) -> Result<Message, String> {
        if from.thread != threads {
            return Err(format!("{} bytes from {from} to the service thread", bytes.len()));
        }
        if tag != TAG {
            return Err(format!("{} bytes with tag {tag:?} to the service thread", bytes.len()));
        }
        Message::decode(bytes)
    }

    /// The message that `bytes` encode.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn decode(bytes: &[u8]) -> Result<Message, String> {
        let invalid = || {
            let head = &bytes[..bytes.len().min(8)];
            format!("an invalid message of {} bytes, {head:?}..", bytes.len())
        };
        let mut rest = Rest(bytes);
        let message = rest.message().ok_or_else(invalid)?;
        if rest.0.is_empty() { Ok(message) } else { Err(invalid()) }
    }
}

fn put_memory(memory: &MemoryDescriptor, put: &mut impl FnMut(&[u8])) {
    put(&[memory.rights.bits()]);
    put(&memory.len.to_le_bytes());
    put(&memory.address.to_le_bytes());
    put(&memory.remote_key.to_le_bytes());
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
                let (responder_resources, sleep_flags) = (self.byte()?, self.memory()?);
                let payloads = match self.byte()? {
                    0 => None,
                    1 => Some(self.memory()?),
                    _ => return None,
                };
                let count = self.half()?;
                if usize::from(count) > THREADS_PER_HOST || responder_resources == 0 {
                    return None;
                }
                let endpoints = (0..count).map(|_| self.endpoint()).collect::<Option<_>>()?;
                Message::Hello { responder_resources, sleep_flags, payloads, endpoints }
            }
            2 => Message::Ready,
            3 if self.0.len() <= CONTROL_BYTES => {
                Message::Control(std::mem::take(&mut self.0).to_vec())
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

    fn memory(&mut self) -> Option<MemoryDescriptor> {
        let memory = MemoryDescriptor {
            rights: Rights::from_bits(self.byte()?)?,
            len: self.word()?,
            address: self.word()?,
            remote_key: self.word32()?,
        };
        memory.is_valid().then_some(memory)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory(address: u64, len: u64) -> MemoryDescriptor {
        MemoryDescriptor { rights: Rights::READ | Rights::ATOMIC, len, address, remote_key: 99 }
    }

    fn hello(
        sleep_flags: MemoryDescriptor,
        payloads: Option<MemoryDescriptor>,
        endpoints: usize,
    ) -> Message {
        let end = Endpoint { gid: [7; 16], lid: 3, mtu: 3, qp: 0x12_3456, first: 0xab_cdef };
        let endpoints = vec![end; endpoints];
        Message::Hello { responder_resources: 16, sleep_flags, payloads, endpoints }
    }

    fn all() -> Vec<Message> {
        let memory = memory(0x7fff_0000_1000, 1 << 40);
        vec![
            hello(memory, None, 3),
            hello(memory, Some(memory), 0),
            Message::Ready,
            Message::Control(vec![1, 2, 3]),
        ]
    }

    #[test]
    fn messages_are_decoded_as_they_were_encoded() {
        for message in all() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn only_service_threads_may_send_and_with_one_tag() {
        let from = |thread| ThreadId { host: transport_api::HostId(1), thread };
        let bytes = Message::Ready.encode();
        assert_eq!(Message::receive((from(2), TAG), 2, &bytes), Ok(Message::Ready));
        for thread in [0, 1, 3] {
            let refused = Message::receive((from(thread), TAG), 2, &bytes).expect_err("a thread");
            assert!(refused.contains(&from(thread).to_string()), "{refused}");
        }
        assert!(Message::receive((from(2), Tag(1)), 2, &bytes).is_err());
    }

    #[test]
    fn memory_does_not_wrap_around() {
        let decoded = |memory| Message::decode(&hello(memory, None, 0).encode());
        assert!(decoded(memory(u64::MAX - 8, 8)).is_ok());
        assert!(decoded(memory(u64::MAX - 8, 9)).is_err());
        assert!(decoded(memory(1, u64::MAX)).is_err());
        let (fits, wraps) = (memory(4096, 64), memory(u64::MAX - 8, 9));
        for (sleep_flags, payloads) in [(wraps, None), (wraps, Some(fits)), (fits, Some(wraps))] {
            let hello = hello(sleep_flags, payloads, 0);
            assert!(Message::decode(&hello.encode()).is_err(), "{hello:?}");
        }
    }

    #[test]
    fn a_message_of_the_control_plane_has_a_limit() {
        let encoded = |len| [&[3], &vec![7; len][..]].concat();
        assert!(Message::decode(&encoded(CONTROL_BYTES)).is_ok());
        let refused = Message::decode(&encoded(64 << 20)).unwrap_err();
        assert!(refused.len() < 100, "{refused}");
    }

    #[test]
    fn a_device_that_serves_no_reads_is_refused() {
        let mut bytes = hello(memory(4096, 64), None, 1).encode();
        assert!(Message::decode(&bytes).is_ok());
        bytes[1] = 0;
        assert!(Message::decode(&bytes).is_err());
    }

    #[test]
    fn a_printed_message_shows_no_secret() {
        let hello = hello(memory(4096, 64), None, 2);
        assert_eq!(format!("{hello:?}"), "Hello of 2 threads");
        assert_eq!(format!("{:?}", Message::Control(vec![7; 9])), "Control of 9 bytes");
    }

    #[test]
    fn a_message_is_whole_or_refused() {
        // All but that of the control plane, which checks its end itself.
        for message in all().split_last().expect("messages").1 {
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
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}

//! Messages in a stream of bytes: four bytes of length, little-endian, then the message. This module
//! uses no socket.
//!
//! Memory is bounded by the bytes that have arrived, not by the announced length: a length above
//! [`LARGEST`] is refused as soon as its four bytes have arrived.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Bytes of the largest message.
pub const LARGEST: usize = 1 << 20;

const HEADER: usize = 4;

/// Bytes are not a message.
#[derive(Debug, Error)]
pub enum FrameError {
    /// It is too large.
    #[error("message of {0} bytes: at most {LARGEST} are allowed")]
    TooLarge(usize),
    /// It cannot be decoded.
    #[error("undecodable message")]
    Decode(#[source] postcard::Error),
    /// More bytes follow the message.
    #[error("message followed by {0} unexpected bytes")]
    Surplus(usize),
    /// It cannot be encoded.
    #[error("cannot encode the message")]
    Encode(#[source] postcard::Error),
}

/// The bytes of a message, with its length in front.
///
/// # Errors
/// [`FrameError::TooLarge`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    // postcard encodes a byte array as its bytes: room for the header. `to_extend` appends byte by byte, which
    // is slow in an unoptimised build that sends a program.
    let mut bytes = postcard::to_stdvec(&([0_u8; HEADER], message)).map_err(FrameError::Encode)?;
    let length = bytes.len() - HEADER;
    if length > LARGEST {
        return Err(FrameError::TooLarge(length));
    }
    bytes[..HEADER].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// Finds messages in bytes as they arrive.
///
/// ```
/// use gossamer_daemon_protocol::frame::{Decoder, encode};
///
/// let bytes = encode(&(1u32, "one"))?;
/// let mut decoder = Decoder::default();
/// decoder.push(&bytes[..5]);
/// assert_eq!(decoder.decode::<(u32, String)>()?, None);
/// decoder.push(&bytes[5..]);
/// assert_eq!(decoder.decode()?, Some((1u32, "one".to_owned())));
/// # Ok::<(), gossamer_daemon_protocol::frame::FrameError>(())
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Leading bytes that were decoded already.
    taken: usize,
}

impl Decoder {
    /// Adds bytes that have arrived. Call [`decode`](Self::decode) then until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it has arrived.
    ///
    /// # Errors
    /// [`FrameError`], after which the stream cannot be decoded.
    pub fn decode<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let bytes = &self.bytes[self.taken..];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > LARGEST {
            return Err(FrameError::TooLarge(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let (message, surplus) = postcard::take_from_bytes(body).map_err(FrameError::Decode)?;
        if !surplus.is_empty() {
            return Err(FrameError::Surplus(surplus.len()));
        }
        self.taken += HEADER + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FromController, FromDaemon, Request};

    #[test]
    fn four_gibibytes_are_refused_by_their_header() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        let error = decoder.decode::<Request>().unwrap_err();
        assert!(matches!(error, FrameError::TooLarge(length) if length == u32::MAX as usize));
        assert!(decoder.bytes.capacity() < 100);
    }

    #[test]
    fn what_is_too_large_is_not_sent() {
        assert!(encode(&vec![0u8; LARGEST + 1]).is_err());
    }

    #[test]
    fn a_surplus_is_refused() {
        let mut bytes = encode(&7u8).unwrap();
        bytes.push(0);
        bytes[0] += 1;
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        assert!(matches!(decoder.decode::<u8>(), Err(FrameError::Surplus(1))));
    }

    #[test]
    fn a_length_inside_a_message_allocates_nothing() {
        // A vector that claims 2^60 elements.
        let body = postcard::to_stdvec(&(1u64 << 60)).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&(body.len() as u32).to_le_bytes());
        decoder.push(&body);
        assert!(decoder.decode::<Vec<u64>>().is_err());
    }

    proptest! {
        #[test]
        fn messages_arrive_however_they_are_cut(
            messages in proptest::collection::vec(".{0,40}", 1..10),
            cut in 1usize..30,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
            let mut decoder = Decoder::default();
            let mut arrived = Vec::new();
            for part in bytes.chunks(cut) {
                decoder.push(part);
                while let Some(message) = decoder.decode::<String>().unwrap() {
                    arrived.push(message);
                }
            }
            prop_assert_eq!(arrived, messages);
        }

        #[test]
        fn any_bytes_are_messages_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            framed: bool,
        ) {
            fn read<T: DeserializeOwned>(bytes: &[u8], framed: bool) {
                let mut decoder = Decoder::default();
                if framed {
                    decoder.push(&(bytes.len() as u32).to_le_bytes());
                }
                decoder.push(bytes);
                while let Ok(Some(_)) = decoder.decode::<T>() {}
            }
            read::<Request>(&bytes, framed);
            read::<FromController>(&bytes, framed);
            read::<FromDaemon>(&bytes, framed);
        }
    }
}

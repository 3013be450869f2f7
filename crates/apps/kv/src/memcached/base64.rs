//! Base64, with padding, as meta commands use it for keys of arbitrary bytes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
///
/// ```
/// use gossamer_kv::memcached::base64::{decode, encode};
/// assert_eq!(encode(b"kv\xff!"), b"a3b/IQ==");
/// assert_eq!(decode(b"a3b/IQ==").as_deref(), Some(&b"kv\xff!"[..]));
/// assert_eq!(decode(b"a3b/IQ"), None);
/// ```
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit > chunk.len() { b'=' } else { ALPHABET[value as usize] });
        }
    }
    text
}

/// Decodes text; `None` if it is empty or no valid base64.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &text[..text.len() - padding];
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in digits.chunks(4) {
        let mut bits = 0;
        for &digit in chunk {
            let value = ALPHABET.iter().position(|&known| known == digit)?;
            bits = bits << 6 | value as u32;
        }
        bits <<= 6 * (4 - chunk.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    (padding <= 2).then(|| bytes.truncate(bytes.len() - padding))?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..50)) {
            let _ = decode(&text);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "a", "ab", "abc", "ab=c", "a===", "====", "ab d", "abc=="] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}

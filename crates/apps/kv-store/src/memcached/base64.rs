//! Base64, with padding, as meta commands use it for keys of arbitrary bytes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub(crate) fn encode(bytes: &[u8]) -> Vec<u8> {
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

/// Decodes text, as memcached does: other characters are passed over, and the first group of four that
/// has padding, wherever that is in it, is the last one. `None` if there is nothing to decode, or the
/// length or the padding is wrong.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let value = |&byte: &u8| match byte {
        b'=' => Some(None),
        _ => ALPHABET.iter().position(|&known| known == byte).map(|value| Some(value as u32)),
    };
    let digits: Vec<Option<u32>> = text.iter().filter_map(value).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit.unwrap_or(0));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
        let padding = group.iter().filter(|digit| digit.is_none()).count();
        if padding > 0 {
            bytes.truncate(bytes.len().saturating_sub(padding));
            return (padding <= 2).then_some(bytes);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn padding_fills_the_last_group() {
        assert_eq!(encode(b"kv\xff!"), b"a3b/IQ==");
        assert_eq!(decode(b"a3b/IQ==").as_deref(), Some(&b"kv\xff!"[..]));
        assert_eq!(decode(b"a3b/IQ"), None);
    }

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
        for text in ["", "a", "ab", "abc", "a===", "====", "ab d", "abc==", "!!!!"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn padding_and_other_characters_are_those_of_memcached() {
        assert_eq!(decode(b"AA=C"), Some(vec![0, 0]));
        assert_eq!(decode(b"Zm9=AAAA"), Some(b"fo".to_vec()));
        assert_eq!(decode(b"Zm!9v$"), Some(b"foo".to_vec()));
    }
}

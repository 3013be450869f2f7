//! [`text`]: bytes as a string, quickly where they are short and ASCII, as names and words mostly are.

use std::str::Utf8Error;

/// The string that `bytes` are.
///
/// # Errors
/// They are not UTF-8.
#[inline]
pub(super) fn text(bytes: &[u8]) -> Result<&str, Utf8Error> {
    if !is_short_ascii(bytes) {
        return std::str::from_utf8(bytes);
    }
    // SAFETY: ASCII is UTF-8.
    Ok(unsafe { std::str::from_utf8_unchecked(bytes) })
}

/// Whether `bytes` are ASCII, if they are 2 to 16: the first and the last of them that fit a word, which
/// overlap, have no byte above 127. Longer ones are left to `from_utf8`, which looks at more at a time.
#[inline]
fn is_short_ascii(bytes: &[u8]) -> bool {
    let ends = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from_ne_bytes(*first) | u64::from_ne_bytes(*last)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from(u32::from_ne_bytes(*first) | u32::from_ne_bytes(*last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // Of three bytes, the middle one is in both.
        u64::from(u16::from_ne_bytes(*first) | u16::from_ne_bytes(*last))
    } else {
        return false;
    };
    bytes.len() <= 16 && ends & 0x8080_8080_8080_8080 == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_taken_for_text_as_by_the_standard_library(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            prop_assert_eq!(text(&bytes), std::str::from_utf8(&bytes));
        }
    }

    #[test]
    fn one_byte_above_ascii_is_seen_wherever_it_is() {
        for len in 0..=20 {
            let ascii = vec![b'a'; len];
            assert_eq!(is_short_ascii(&ascii), (2..=16).contains(&len), "{len} bytes");
            assert_eq!(text(&ascii).map(str::len), Ok(len));
            for at in 0..len {
                let mut bytes = ascii.clone();
                bytes[at] = 0x80;
                assert!(text(&bytes).is_err(), "byte {at} of {len}");
            }
        }
    }
}

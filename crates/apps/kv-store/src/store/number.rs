//! Numbers as memcached parses and formats them: the rules of C's `strtoull`.
//!
//! Leading white space and a sign are allowed; the digits must be followed by the end, white space,
//! or a zero byte. Some of the rules are odd (`1 2` is 1), but clients can observe them.

/// Bytes of the longest number of 64 bits in decimal.
const DIGITS_MAX: usize = 20;

/// Whether C counts a byte as white space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Sign and magnitude of the number at the start of `text`, if it is valid.
fn scan(text: &[u8]) -> Option<(bool, u64)> {
    let start = text.iter().position(|&byte| !is_space(byte)).unwrap_or(text.len());
    let (negative, digits) = match text[start..] {
        [b'-', ..] => (true, start + 1),
        [b'+', ..] => (false, start + 1),
        _ => (false, start),
    };
    let mut end = digits;
    let mut value = 0u64;
    while let Some(byte) = text.get(end).filter(|byte| byte.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        end += 1;
    }
    if end == digits {
        return None;
    }
    let ends = text.get(end).is_none_or(|&byte| byte == 0 || is_space(byte));
    ends.then_some((negative, value))
}

/// Parses an unsigned 64-bit number.
///
/// ```
/// use gossamer_kv_store::store::number::unsigned;
/// assert_eq!(unsigned(b"42"), Some(42));
/// assert_eq!(unsigned(b" +42  "), Some(42));
/// assert_eq!(unsigned(b"18446744073709551616"), None);
/// assert_eq!(unsigned(b"-1"), None);
/// assert_eq!(unsigned(b"12a"), None);
/// ```
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (negative, magnitude) = scan(text)?;
    // A minus sign wraps around, and is rejected only if the result has its top bit set.
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    ((value as i64) >= 0 || !text.contains(&b'-')).then_some(value)
}

/// Parses a signed 64-bit number.
///
/// ```
/// use gossamer_kv_store::store::number::signed;
/// assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
/// assert_eq!(signed(b"9223372036854775808"), None);
/// assert_eq!(signed(b""), None);
/// ```
pub fn signed(text: &[u8]) -> Option<i64> {
    let (negative, magnitude) = scan(text)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// The digits of a number below 10^8, with zeros in front. The number is split in two, and these in the
/// same way, all at once in the lanes of a word: the divisions are multiplications that are exact for
/// numbers so small.
fn eight_digits(value: u32) -> [u8; 8] {
    let fours = u64::from(value / 10_000) | u64::from(value % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (pairs - 10 * tens) << 8;
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

/// The decimal digits of a number, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; DIGITS_MAX],
    start: usize,
}

impl Decimal {
    /// The digits of `value`.
    ///
    /// ```
    /// use gossamer_kv_store::store::number::Decimal;
    /// assert_eq!(Decimal::new(u64::MAX).as_bytes(), b"18446744073709551615");
    /// assert_eq!(Decimal::new(0).as_bytes(), b"0");
    /// ```
    pub fn new(value: u64) -> Self {
        // Eight at a time: one division after the other would wait for the one before.
        const EIGHT: u64 = 100_000_000;
        let mut digits = [0; DIGITS_MAX];
        let (low, rest) = (value % EIGHT, value / EIGHT);
        let (middle, high) = (rest % EIGHT, rest / EIGHT);
        digits[..4].copy_from_slice(&eight_digits(high as u32)[4..]);
        digits[4..12].copy_from_slice(&eight_digits(middle as u32));
        digits[12..].copy_from_slice(&eight_digits(low as u32));
        let count = value.checked_ilog10().unwrap_or(0) as usize + 1;
        Self { digits, start: DIGITS_MAX - count }
    }

    /// The digits as text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        let powers = (0..DIGITS_MAX as u32).map(|digits| 10u64.pow(digits));
        let near_powers = powers.flat_map(|power| [power - 1, power, power + 1]);
        // Every number of four digits, in each group of eight.
        let small = (0..10_000).flat_map(|number| [number, number * 100_000_000 + 9_999 - number]);
        let mut rng = fastrand::Rng::with_seed(1);
        let random = std::iter::repeat_with(|| rng.u64(..)).take(10_000);
        for number in near_powers.chain(small).chain(random).chain([u64::MAX]) {
            assert_eq!(Decimal::new(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}

//! Decimal fractions as memcached parses them: the rules of C's `strtod`.

use crate::store::number::is_space;

/// Parses a number with a fraction or without, in decimal or in hexadecimal, or one that is infinite
/// or none; `None` if it is not followed by white space, a zero byte or the end, or is too large.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let start = text.iter().position(|&byte| !is_space(byte)).unwrap_or(text.len());
    let rest = &text[start..];
    let end = rest.iter().position(|&byte| byte == 0 || is_space(byte)).unwrap_or(rest.len());
    let word = std::str::from_utf8(&rest[..end]).ok()?;
    let (is_negative, digits) = match word.as_bytes().first()? {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    // A number has at most one sign.
    let first = digits.chars().next().filter(|first| !matches!(first, '-' | '+'))?;
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => hexadecimal(digits)?,
        None => digits.parse().ok()?,
    };
    let is_named = first.is_ascii_alphabetic();
    (is_named || value.is_finite()).then_some(if is_negative { -value } else { value })
}

fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.chars().chain(fraction.chars());
    let value =
        digits().try_fold(0.0, |sum, digit| Some(sum * 16.0 + f64::from(digit.to_digit(16)?)));
    let shift = exponent.saturating_sub(4 * i32::try_from(fraction.len()).ok()?);
    digits().next()?;
    Some(value? * f64::from(shift).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_those_of_c() {
        assert_eq!(float(b"0.5"), Some(0.5));
        assert_eq!(float(b" -.5e1 "), Some(-5.0));
        assert_eq!(float(b"0x1.8p-1"), Some(0.75));
        assert_eq!(float(b"INF"), Some(f64::INFINITY));
        assert!(float(b"nan").is_some_and(f64::is_nan));
        assert_eq!([float(b"1e400"), float(b"1x"), float(b""), float(b"0x")], [None; 4]);
    }
}

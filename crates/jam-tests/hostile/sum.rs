//! Harmless: a sum of the payload.

/// The sum, times the argument.
pub fn sum(scale: u64, payload: &[u32]) -> u64 {
    payload.iter().map(|value| u64::from(*value)).sum::<u64>() * scale
}

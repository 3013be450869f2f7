//! Server-Side Sum, of a payload of words; uses no property.

jam::plain! {
    #[derive(Debug, PartialEq)]
    pub struct Sums { pub sum: u64, pub greatest: u32, pub count: u32 }
}

/// Sums of the payload.
pub fn scaled_sum(scale: u64, payload: &[u32]) -> Sums {
    let sum = payload.iter().map(|value| u64::from(*value)).sum::<u64>() * scale;
    let greatest = payload.iter().copied().max().unwrap_or(0);
    Sums { sum, greatest, count: payload.len() as u32 }
}

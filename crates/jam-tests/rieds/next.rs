//! Calls a ried that calls another one.

jam::import! {
    fn needy_next(key: u64) -> u64;
}

/// What follows.
pub fn next(key: u64) -> u64 {
    needy_next(key)
}

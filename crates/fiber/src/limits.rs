//! Limits that errors name and the core enforces.

/// Fibers of one thread, at most.
pub const MAX_FIBERS: usize = 1 << 20;

//! What loom lacks, made of what it has.

use crate::sync::{AtomicBool, Ordering};

/// As [`std::sync::OnceLock`]: a thread that sees the value sees all that its setter did before.
#[derive(Debug)]
pub struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    /// Without a value.
    pub fn new() -> Self {
        Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    /// The value, if it is set.
    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// The value that was given, if another was set before.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }
}

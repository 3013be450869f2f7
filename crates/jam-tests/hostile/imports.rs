//! Imports a function of the program.

jam::import! {
    fn exported_to_jams(key: u64) -> u64;
}

/// Calls it.
pub fn imports(key: u64) -> u64 {
    exported_to_jams(key)
}

//! Works on a property of the program.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

/// Looks at its address.
pub fn other_property(table: &mut Table) -> u64 {
    table as *const Table as u64
}

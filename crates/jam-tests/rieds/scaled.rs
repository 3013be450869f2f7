//! Calls what only rieds have.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_scale(table: &mut Table, key: u64) -> u64;
}

/// The scaled place of a key.
pub fn scaled(table: &mut Table, key: u64) -> u64 {
    table_scale(table, key)
}

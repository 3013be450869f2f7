//! One import, a word in and a word out: the smallest useful call.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_slot(table: &mut Table, key: u64) -> u64;
}

/// The place of a key.
pub fn slot(table: &mut Table, key: u64) -> u64 {
    table_slot(table, key)
}

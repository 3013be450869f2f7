//! Calls a function of the program, before which a ried may stand.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_slot(table: &mut Table, key: u64) -> u64;
}

/// The place of a key.
pub fn place(table: &mut Table, key: u64) -> u64 {
    table_slot(table, key)
}

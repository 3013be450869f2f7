//! Lets time pass between its start and the look at its payload.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_hold(table: &mut Table);
    fn table_slot(table: &mut Table, key: u64) -> u64;
    fn table_write(table: &mut Table, at: u64, bytes: &[u8]) -> bool;
}

/// Stores the payload at the place of a key: 1 if there is room for it.
pub fn held(table: &mut Table, key: u64, payload: &[u8]) -> u64 {
    table_hold(table);
    let at = table_slot(table, key);
    table_write(table, at, payload) as u64
}

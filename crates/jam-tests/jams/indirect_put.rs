//! Indirect Put: probes the table with the client's key, and stores the payload where it says.

jam::plain! {
    /// Where the payload goes.
    pub struct PutArgs { pub key: u64, pub offset: u64 }
}

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_slot(table: &mut Table, key: u64) -> u64;
    fn table_write(table: &mut Table, at: u64, bytes: &[u8]) -> bool;
}

/// Where the payload is now; -1 if there is no room for it.
pub fn indirect_put(table: &mut Table, args: PutArgs, payload: &[u8]) -> i64 {
    let at = table_slot(table, args.key) + args.offset;
    if table_write(table, at, payload) { at as i64 } else { -1 }
}

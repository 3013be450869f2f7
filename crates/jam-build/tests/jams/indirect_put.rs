//! Indirect Put: probes the server's table with the client's key, and stores the payload where the
//! table says.

jam::plain! {
    /// Where the payload goes.
    pub struct PutArgs {
        /// The key that the client knows.
        pub key: u64,
        /// The offset from what the table has for the key, in bytes.
        pub offset: u64,
    }
}

jam::property! {
    /// The server's table, and the memory that it divides.
    pub struct Table = "bench.Table@1";
}

jam::import! {
    /// What slot `slot` of the table contains: its key.
    fn table_key(table: &Table, slot: u64) -> u64;
    /// What slot `slot` of the table contains: where the memory of its key is.
    fn table_place(table: &Table, slot: u64) -> u64;
    /// How many slots there are: a power of two.
    fn table_slots(table: &Table) -> u64;
    /// Stores bytes in the server's memory, if they fit.
    fn table_write(table: &mut Table, place: u64, bytes: &[u8]) -> bool;
}

/// Returns where the payload is, -1 if there is no such key, -2 if it does not fit.
pub fn indirect_put(table: &mut Table, args: PutArgs, payload: &[u8]) -> i64 {
    let slots = table_slots(table);
    let first = args.key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for probe in 0..slots {
        let slot = first.wrapping_add(probe) & slots.wrapping_sub(1);
        if table_key(table, slot) == args.key {
            let place = table_place(table, slot).wrapping_add(args.offset);
            let is_stored = table_write(table, place, payload);
            return if is_stored { place as i64 } else { -2 };
        }
    }
    -1
}

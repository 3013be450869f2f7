//! Stands before a function of the program, which it calls.

ried::property! {
    /// The table of the program.
    pub struct Table = "jam-tests.Table@1";
}

ried::interface! {
    import {
        fn slot_before(table: &mut Table, key: u64) -> u64 = "table_slot";
    }
    export {
        /// The place of a key, and a million.
        pub fn table_slot(table: &mut Table, key: u64) -> u64 {
            slot_before(table, key) + 1_000_000
        }
    }
}

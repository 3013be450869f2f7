//! The function of `doubled`, with another meaning.

ried::property! {
    /// The table of the program.
    pub struct Table = "jam-tests.Table@1";
}

ried::interface! {
    import {
        fn table_slot(table: &mut Table, key: u64) -> u64;
    }
    export {
        /// Three times the place of a key.
        pub fn table_scale(table: &mut Table, key: u64) -> u64 {
            table_slot(table, key) * 3
        }
    }
}

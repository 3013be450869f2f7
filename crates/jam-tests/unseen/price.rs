//! Code that the program was not built with, which uses what it exports.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_slot(table: &mut Table, key: u64) -> u64;
}

pub fn price(table: &mut Table, key: u64) -> u64 {
    table_slot(table, key) * 1000 + 17
}

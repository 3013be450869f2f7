//! Imports what no program exports.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_vanish(table: &mut Table) -> u64;
}

pub fn missing(table: &mut Table) -> u64 {
    table_vanish(table)
}

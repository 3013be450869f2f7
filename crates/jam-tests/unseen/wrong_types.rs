//! Imports a function with other types than it has.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_slot(table: &mut Table, key: u32) -> u64;
}

pub fn wrong_types(table: &mut Table) -> u64 {
    table_slot(table, 1)
}

//! Fails in the way that its argument says.

use jam::Context;

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn table_panic(table: &mut Table, code: u64) -> u64;
    fn table_wait(table: &mut Table) -> u64;
}

/// 0 does not fail.
pub fn faulty(cx: &Context<'_>, table: &mut Table, how: u64) -> u64 {
    let some = [1, 2, 3];
    match how {
        0 => 7,
        1 => panic!("as it was told"),
        2 => some[how as usize + table as *const Table as usize],
        3 => table_panic(table, how),
        5 => table_wait(table),
        _ => {
            cx.log("not failing");
            u64::from(cx.sender())
        }
    }
}

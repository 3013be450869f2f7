//! Asks a ried how often it was called, or has it fail.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    fn scale_calls() -> u64;
    fn scale_fail(table: &mut Table, how: u64) -> u64;
}

/// 0 asks.
pub fn scale_fault(table: &mut Table, how: u64) -> u64 {
    if how == 0 { scale_calls() } else { scale_fail(table, how) }
}

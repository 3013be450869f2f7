//! Server-Side Sum: adds up the payload, and stores the sum in the table's list of results.

jam::property! {
    pub struct Table = "jam-tests.Table@1";
}

jam::import! {
    /// Stores a result.
    fn table_push(table: &mut Table, sum: i64) -> u64;
}

/// Returns the sum.
pub fn server_side_sum(table: &mut Table, payload: &[i32]) -> i64 {
    let sum = payload.iter().map(|value| i64::from(*value)).sum();
    table_push(table, sum);
    sum
}

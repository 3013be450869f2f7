//! Server-Side Sum: adds up the payload, and stores the sum at the next place of the server's array.

jam::property! {
    /// The server's array of results.
    pub struct Results = "bench.Results@1";
}

jam::import! {
    /// Stores a result, and returns its place.
    fn results_push(results: &mut Results, sum: i64) -> u64;
}

/// Returns the sum.
pub fn server_side_sum(results: &mut Results, payload: &[i32]) -> i64 {
    let sum = payload.iter().map(|value| i64::from(*value)).sum();
    results_push(results, sum);
    sum
}

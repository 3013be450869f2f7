//! Rounds that memory does not suffice for.

use super::*;
use crate::memcached::budget::Budget;
use crate::memcached::connection::Connection;
use crate::memcached::local::{LocalShards, NoServer};

#[test]
fn little_data_is_kept_outside_the_budget() {
    let shards = LocalShards::new(1, None);
    let set = |key: &str, bytes| format!("set {key} 0 0 {bytes}\r\n{}\r\n", "x".repeat(bytes));
    let run = |input: String, budget: &Budget| {
        let mut connection = Connection::new();
        connection.received(input.as_bytes());
        let batch = connection.next_batch().unwrap();
        batch.run(&shards, &NoServer, 1_700_000_000, Output::new(budget))
    };
    let unlimited = Budget::new(usize::MAX);
    run(set("large", 400_000), &unlimited);
    (0..50).for_each(|n| drop(run(set(&format!("small{n}"), SMALL_BYTES), &unlimited)));
    let reads =
        (0..50).fold("mg large v\r\n".to_owned(), |all, n| all + &format!("mg small{n} v\r\n"));
    let Progress { remaining, shortage, .. } = run(reads, &Budget::new(300_000));
    assert!(shortage.is_some());
    let kept = |(_, work): &(Format, Work)| match work {
        Work::Response(Response::Meta(item)) => item.data.as_ref().map_or(0, |data| data.len()),
        _ => 0,
    };
    let kept: usize = remaining.begun.iter().map(kept).sum();
    assert_eq!(kept, (ROUND_META_READS - 1) * SMALL_BYTES);
}

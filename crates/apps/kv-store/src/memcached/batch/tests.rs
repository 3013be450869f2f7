//! Rounds that memory does not suffice for.

use super::*;
use crate::memcached::budget::Budget;
use crate::memcached::connection::Connection;
use crate::memcached::local::{LocalShards, NoServer};
use crate::store::Control;

#[test]
fn a_get_that_is_read_again_counts_once() {
    let shards = LocalShards::new(1, None);
    let mut connection = Connection::new();
    let large = "x".repeat(100_000);
    let set = format!("set large 0 0 100000\r\n{large}\r\nset small 0 0 1\r\ny\r\n");
    connection.received(set.as_bytes());
    connection.received(b"get small large small other\r\n");
    let mut answers = Vec::new();
    // At first there is no room for the large item.
    for budget in [Budget::new(50_000), Budget::new(usize::MAX)] {
        let batch = connection.next_batch().unwrap();
        let output = Output::new(&budget);
        connection.completed(batch.run(&shards, &NoServer, 1_700_000_000, output));
        answers.extend_from_slice(&connection.output().to_vec());
        connection.sent(connection.output().len());
        connection.resume();
    }
    let small = "VALUE small 0 1\r\ny\r\n";
    let large = format!("VALUE large 0 100000\r\n{large}\r\n");
    let expected = format!("STORED\r\nSTORED\r\n{small}{large}{small}END\r\n");
    assert!(answers == expected.as_bytes(), "{} bytes", answers.len());
    let stats = shards.control(Control::Stats, 1_700_000_000);
    let [Response::Stats(stats)] = &stats[..] else { panic!("{stats:?}") };
    assert_eq!((stats.cmd_get, stats.get_hits, stats.get_misses), (4, 3, 1));
}

#[test]
fn an_item_that_grows_before_it_is_read_again_counts_once() {
    let shards = LocalShards::new(1, None);
    let now = 1_700_000_000;
    let set = |key: &str, bytes| {
        let mut connection = Connection::new();
        connection
            .received(format!("set {key} 0 0 {bytes}\r\n{}\r\n", "x".repeat(bytes)).as_bytes());
        let batch = connection.next_batch().unwrap();
        drop(batch.run(&shards, &NoServer, now, Output::new(&Budget::new(usize::MAX))));
    };
    let mut connection = Connection::new();
    connection.received(b"gat 0 large small\r\n");
    let mut answered = 0;
    // Both grow between rounds. Twice there is no room for `large`, so `small` is read again.
    for (large, small, budget) in
        [(100_000, 1, 50_000), (200_000, 50_000, 150_000), (200_000, 60_000, usize::MAX)]
    {
        set("large", large);
        set("small", small);
        let batch = connection.next_batch().unwrap();
        let output = Output::new(&Budget::new(budget));
        connection.completed(batch.run(&shards, &NoServer, now, output));
        answered += connection.output().len();
        connection.sent(connection.output().len());
        connection.resume();
    }
    let expected = "VALUE large 0 200000\r\n\r\nVALUE small 0 60000\r\n\r\nEND\r\n".len() + 260_000;
    assert_eq!(answered, expected);
    let stats = shards.control(Control::Stats, now);
    let [Response::Stats(stats)] = &stats[..] else { panic!("{stats:?}") };
    assert_eq!((stats.cmd_touch, stats.touch_hits), (2, 2));
}

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

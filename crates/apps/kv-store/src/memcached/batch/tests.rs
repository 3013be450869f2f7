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
    connection.received(b"get large small\r\n");
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
    assert_eq!((stats.cmd_get, stats.get_hits), (2, 2));
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
    let meta = (0..50).map(|n| format!("mg small{n} v\r\n")).collect::<String>();
    let keys = (0..50).map(|n| format!(" small{n}")).collect::<String>();
    for reads in [format!("mg large v\r\n{meta}"), format!("gat 0 large{keys}\r\n")] {
        let Progress { remaining, shortage, .. } = run(reads, &Budget::new(300_000));
        assert!(shortage.is_some());
        let kept = |(_, work): &(Format, Work)| match work {
            Work::Response(Response::Meta(item)) => item.data.as_ref().map_or(0, |data| data.len()),
            Work::Response(Response::Value { data, .. }) => data.len(),
            _ => 0,
        };
        let kept: usize = remaining.begun.iter().map(kept).sum();
        assert_eq!(kept, (ROUND_KEPT_READS - 1) * SMALL_BYTES);
    }
}

#[test]
fn a_get_that_expires_its_items_returns_all_of_them() {
    let shards = LocalShards::new(1, None);
    let value = |key: &str, bytes| format!("VALUE {key} 0 {bytes}\r\n{}\r\n", "x".repeat(bytes));
    let items = [("b1", 100_000), ("b2", 100_000), ("b3", 100_000), ("b4", 100_000), ("s", 1)];
    let mut connection = Connection::new();
    let (mut answers, mut expected) = (Vec::new(), String::new());
    for (key, bytes) in items {
        let set = format!("set {key} 0 0 {bytes} noreply\r\n{}\r\n", "x".repeat(bytes));
        connection.received(set.as_bytes());
        expected += &value(key, bytes);
    }
    // The first three fill the output, when `s` has been touched.
    connection.received(b"gat -1 b1 b2 b3 b4 s\r\n");
    while let Some(batch) = connection.next_batch() {
        let output = Output::new(&Budget::new(usize::MAX));
        connection.completed(batch.run(&shards, &NoServer, 1_700_000_000, output));
        answers.extend_from_slice(&connection.output().to_vec());
        connection.sent(connection.output().len());
    }
    expected += "END\r\n";
    assert!(answers == expected.as_bytes(), "{} of {} bytes", answers.len(), expected.len());
}

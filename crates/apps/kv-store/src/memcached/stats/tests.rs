//! Reports in parts.

use super::*;
use crate::memcached::batch::REPORT_BYTES;
use crate::memcached::local::LocalShards;
use crate::store::{KEY_BYTES_MAX, Key, Request, Verb};

const NOW: Seconds = 1_700_000_000;

/// A server whose connections have these numbers.
struct Connected(Vec<u64>);

impl ServerState for Connected {
    fn stats(&self, _now: Seconds) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn connections(&self, from: u64, count: usize, _now: Seconds) -> (Vec<ConnectionReport>, u64) {
        let numbers = self.0.iter().filter(|number| **number >= from).take(count);
        let report = |&number: &u64| ConnectionReport {
            number,
            address: "a".to_owned(),
            listener: None,
            state: "conn_read".to_owned(),
            idle: 0,
        };
        // As if one connection came with each part.
        (numbers.map(report).collect(), from + 40)
    }

    fn start_crawl(&self, _settings: Settings) {}
}

/// A report, and the number of its parts, each of which fits into what is reserved for it.
fn whole(report: Report, shards: &dyn Shards, server: &dyn ServerState) -> (String, usize) {
    let (mut output, mut rest, mut parts) = (Output::default(), Some(report), 0);
    while let Some(report) = rest {
        let before = output.len();
        rest = write(report, shards, server, NOW, &mut output);
        assert!(output.len() - before <= REPORT_BYTES, "{} bytes", output.len() - before);
        parts += 1;
    }
    (String::from_utf8(output.to_vec()).unwrap(), parts)
}

#[test]
fn parts_of_reports_by_prefix_add_up_and_are_bounded() {
    let shards = LocalShards::new(3, None);
    shards.control(Control::CountPrefixes(true), NOW);
    // Every byte is escaped, and keys of one prefix are on several shards.
    let prefix = |number: u8| [vec![1; KEY_BYTES_MAX - 5], vec![number / 8 + 1, number % 8 + 1]];
    for number in 0..50 {
        for key in 0..4 {
            let key = Key::new(&[&prefix(number).concat()[..], &[b':', key]].concat());
            shards.call(Request::Get { key, max_bytes: 0 }, NOW);
        }
    }
    let (report, parts) =
        whole(Report::Prefixes { from: Vec::new() }, &shards, &Connected(Vec::new()));
    let line = |number| {
        let [first, last] = prefix(number);
        let name = first.into_iter().chain(last).map(|byte| format!("%{byte:02X}"));
        format!("PREFIX {} get 4 hit 0 set 0 del 0\r\n", name.collect::<String>())
    };
    assert_eq!(report, (0..50).map(line).collect::<String>() + "END\r\n");
    assert_eq!(parts, 4);
}

#[test]
fn parts_of_reports_by_size_and_connection_add_up() {
    let shards = LocalShards::new(2, None);
    shards.control(Control::CountSizes(true), NOW);
    let store = |number: usize| Request::Store {
        verb: Verb::Set,
        key: Key::from(&*format!("k{number}")),
        flags: 0,
        exptime: 0,
        data: vec![0; number % 40 * 32],
        meta: None,
    };
    (0..80).for_each(|number| drop(shards.call(store(number), NOW)));
    let numbers: Vec<u64> = (0..32).map(|number| number * 3).collect();
    let server = Connected(numbers.clone());
    let (report, parts) = whole(Report::Sizes { from: 0 }, &shards, &server);
    let sizes: Vec<(u32, u32)> = report
        .lines()
        .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '))
        .map(|(size, items)| (size.parse().unwrap(), items.parse().unwrap()))
        .collect();
    assert!(sizes.is_sorted_by(|(one, _), (next, _)| one + 32 == *next), "{sizes:?}");
    assert_eq!(sizes.iter().map(|(_, items)| *items).sum::<u32>(), 80);
    assert_eq!((sizes.len() / 16 + 1, report.ends_with("\r\nEND\r\n")), (parts, true));

    let (report, parts) = whole(Report::Connections { from: 0, end: None }, &shards, &server);
    let line = |number| {
        let texts = ["addr a", "state conn_read", "secs_since_last_cmd 0"];
        texts.map(|text| format!("STAT {number}:{text}\r\n")).concat()
    };
    let there = numbers.into_iter().filter(|number| *number < 40);
    assert_eq!(report, there.map(line).collect::<String>() + "END\r\n");
    assert_eq!(parts, 1, "connections that came later are not reported");
}

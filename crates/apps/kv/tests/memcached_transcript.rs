//! Replays recorded exchanges with memcached, `fixtures/memcached.txt`, without sockets, in one
//! chunk and byte by byte; the responses must be the same.

use gossamer_kv::memcached::local::LocalShards;
use gossamer_kv::memcached::{Budget, Connection, Output, ServerState};
use gossamer_kv::store::Settings;

/// Sent before each exchange, as it was during the recording, so that exchanges are independent.
const CLEAN: &[u8] = b"delete k noreply\r\ndelete n noreply\r\ndelete a noreply\r\n";

const FIXTURE: &str = include_str!("fixtures/memcached.txt");

struct NoServer;

impl ServerState for NoServer {
    fn stats(&self, _now: u64) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn start_crawl(&self, _settings: Settings) {}
}

/// Undoes the escapes of the fixture: `\r`, `\n`, `\t`, `\\` and `\xNN`.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&kind, after) = rest.split_first().expect("an escape has a second character");
        rest = after;
        bytes.push(match kind {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => {
                let (digits, after) = rest.split_at(2);
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            }
            other => panic!("unknown escape {:?}", char::from(other)),
        });
    }
    bytes
}

/// The responses to `input`, sent in chunks of `size`; `<EOF>` at the end if the server closes.
fn exchange(shards: &LocalShards, input: &[u8], size: usize) -> Vec<u8> {
    let mut connection = Connection::new();
    let mut response = Vec::new();
    for chunk in input.chunks(size) {
        connection.received(chunk);
        while let Some(batch) = connection.next_batch() {
            let output = Output::new(&Budget::new(usize::MAX));
            connection.completed(batch.run(shards, &NoServer, 1_700_000_000, output));
            response.extend_from_slice(&connection.output().to_vec());
            connection.sent(connection.output().len());
        }
    }
    if connection.is_finished() {
        response.extend_from_slice(b"<EOF>");
    }
    response
}

/// A response as text, without what may differ: the version, and the first unique number of `gets`,
/// from which the others are counted.
fn comparable(response: &[u8]) -> String {
    let text = response.escape_ascii().to_string();
    let mut first = None;
    let lines = text.split("\\r\\n").map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["VERSION", ..] => "VERSION *".to_owned(),
            ["VALUE", key, flags, length, unique] => {
                let unique: u64 = unique.parse().expect("a unique number");
                let from_first = unique.wrapping_sub(*first.get_or_insert(unique));
                format!("VALUE {key} {flags} {length} first+{from_first}")
            }
            _ => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\\r\\n")
}

fn replay(size: usize) {
    let shards = LocalShards::new(1, None);
    let mut exchanges = 0;
    let mut wrong = Vec::new();
    let mut lines = FIXTURE.lines();
    while let Some(line) = lines.next() {
        let Some(sent) = line.strip_prefix("> ") else { continue };
        let expected = lines.next().and_then(|line| line.strip_prefix("< ")).expect("a response");
        let input = [CLEAN, &unescape(sent)].concat();
        let response = comparable(&exchange(&shards, &input, size));
        let expected = comparable(&unescape(expected));
        if response != expected {
            wrong.push(format!("sent      {sent}\nmemcached {expected}\nkv        {response}\n"));
        }
        exchanges += 1;
    }
    assert!(exchanges > 100, "the fixture holds only {exchanges} exchanges");
    assert!(wrong.is_empty(), "{} responses differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn whole() {
    replay(usize::MAX);
}

#[test]
fn byte_by_byte() {
    replay(1);
}

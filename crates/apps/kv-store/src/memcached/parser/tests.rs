//! Framing: chunks, limits, and streams that resemble the protocol.

use proptest::prelude::*;

use super::*;
use crate::store::{ITEM_BYTES_MAX, Key, Request};

/// All commands of `input`, fed in chunks that end at `cuts`, and the maximum of buffered
/// bytes.
fn commands(input: &[u8], cuts: &[usize]) -> (Vec<Command>, usize) {
    let mut parser = Parser::new();
    let (mut commands, mut most, mut start) = (Vec::new(), 0, 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        parser.feed(&input[start..cut]);
        while let Some(command) = parser.next_command() {
            commands.push(command);
        }
        most = most.max(parser.buffered());
        start = cut;
    }
    (commands, most)
}

fn whole(input: &[u8]) -> Vec<Command> {
    commands(input, &[]).0
}

#[test]
fn data_may_contain_anything() {
    let input = b"set k 1 2 11\r\nget a\r\n\0\xff\r\n\r\nversion\r\n";
    let commands = whole(input);
    let Command::Single { request: Request::Store { data, .. }, noreply: false } = &commands[0]
    else {
        panic!("{commands:?}")
    };
    assert_eq!(data, b"get a\r\n\0\xff\r\n");
}

#[test]
fn an_item_that_is_too_large_is_skipped_without_being_buffered() {
    let length = 50 * ITEM_BYTES_MAX;
    let mut parser = Parser::new();
    parser.feed(format!("set k 0 0 {length}\r\n").as_bytes());
    assert_eq!(parser.next_command(), None);
    let chunk = vec![b'x'; 1 << 16];
    for _ in 0..length / chunk.len() {
        parser.feed(&chunk);
        assert_eq!(parser.next_command(), None);
        assert_eq!(parser.buffered(), 0);
    }
    parser.feed(b"\r\nversion\r\n");
    let reason = Refusal::TooLarge { removes: true };
    let request = Request::Refused { key: Key::new(b"k"), reason, meta: false };
    assert_eq!(parser.next_command(), Some(Command::Single { request, noreply: true }));
    assert_eq!(parser.next_command(), Some(Command::Respond(command::TOO_LARGE)));
    assert!(matches!(parser.next_command(), Some(Command::Respond(_))));
}

#[test]
fn long_lines_close_the_connection_and_long_retrievals_do_not() {
    let long = [b'x'; LINE_BYTES_MAX + 1];
    assert_eq!(whole(&long), [Command::Close]);
    assert_eq!(whole(&[&long[1..], b"\n"].concat()), [Command::Respond("ERROR\r\n")]);
    let keys = "k ".repeat(RETRIEVAL_BYTES_MAX / 2 - 5);
    let line = format!("gets {keys}\r\nversion\r\n");
    assert!(matches!(&whole(line.as_bytes())[..], [Command::Retrieve { .. }, _]));
    let keys = "k ".repeat(RETRIEVAL_BYTES_MAX / 2);
    assert_eq!(whole(format!("get {keys}").as_bytes()), [Command::Close]);
}

#[test]
fn what_a_long_command_needs_is_known_before_it_is_buffered() {
    let mut parser = Parser::new();
    parser.feed(b"set k 0 0 1000000\r\nabc");
    assert_eq!((parser.next_command(), parser.needs()), (None, 2 * 1_000_002 + FREE_BYTES));
    assert!(parser.buffer.capacity() < 1000, "nothing is reserved before it was asked for");
    parser.feed(&vec![b'x'; 999_997]);
    assert!(parser.buffer.capacity() <= 1_000_002 + FREE_BYTES + 999_997);
    parser.feed(b"\r\nset l 0 0 3\r\n");
    assert!(matches!(parser.next_command(), Some(Command::Single { .. })));
    assert_eq!((parser.next_command(), parser.needs()), (None, 0));
    assert!(parser.buffer.capacity() <= 2 * FREE_BYTES);
    // A line that may have any length.
    parser.feed(b"abc\r\nget ");
    parser.feed(&b"k ".repeat(FREE_BYTES / 2));
    assert!(matches!(parser.next_command(), Some(Command::Single { .. })));
    assert_eq!((parser.next_command(), parser.needs()), (None, RETRIEVAL_BYTES_MAX + FREE_BYTES));
    parser.feed(b"\r\n");
    assert!(matches!(parser.next_command(), Some(Command::Retrieve { .. })));
    assert_eq!((parser.needs(), parser.buffer.capacity()), (0, 0));
}

#[test]
fn a_client_of_the_binary_protocol_is_disconnected() {
    assert_eq!(whole(b"\x80\n\0\0version\r\n"), [Command::Close]);
    // Elsewhere it is a byte as any other.
    assert_eq!(whole(b"\n\x80\r\n"), vec![Command::Respond("ERROR\r\n"); 2]);
}

#[test]
fn input_after_quit_is_ignored() {
    assert_eq!(whole(b"quit\r\nversion\r\n"), [Command::Close]);
    let mut parser = Parser::new();
    parser.feed(b"quit\r\n");
    assert_eq!(parser.next_command(), Some(Command::Close));
    parser.feed(b"version\r\n");
    assert_eq!((parser.next_command(), parser.buffered()), (None, 0));
}

/// Bytes similar enough to the protocol to reach its deeper states.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "incr",
        "decr",
        "delete",
        "touch",
        "flush_all",
        "version",
        "verbosity",
        "stats",
        "quit",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "v",
        "b",
        "Oz",
        "MX",
        "T30",
        "lru",
        "lru_crawler",
        "cache_memlimit",
        "noreply",
        "reset",
        "key",
        "0",
        "1",
        "3",
        "-1",
        "1048577",
        "4294967296",
        " ",
        " ",
        " ",
        " ",
        " ",
        "\r\n",
        "\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        "\0",
        "abc\r\n",
        "HTTP/1.1",
    ]);
    let piece = prop_oneof![
        12 => fixed.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (0..40u8, 0..3000usize).prop_map(|(byte, length)| vec![byte; length]),
        2 => (prop::sample::select(vec!["set", "add", "append", "cas"]), 0..20usize)
            .prop_map(|(verb, length)| {
                let cas = if verb == "cas" { " 1" } else { "" };
                let data = "d".repeat(length);
                format!("{verb} key 0 0 {length}{cas}\r\n{data}\r\n").into_bytes()
            }),
        2 => (prop::sample::select(vec!["", " T0", " MX", " b", " q"]), 0..20usize).prop_map(
            |(flags, length)| {
                let data = "d".repeat(length);
                format!("ms key {length}{flags}\r\n{data}\r\n").into_bytes()
            }
        ),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn chunk_boundaries_do_not_matter(
        input in stream(),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)
            .prop_map(|cuts| cuts.into_iter().collect::<Vec<_>>()),
        bytewise in any::<bool>(),
    ) {
        let cuts: Vec<usize> = if bytewise {
            (0..input.len()).collect()
        } else {
            let mut at: Vec<usize> =
                cuts.drain(..).map(|cut| cut.index(input.len() + 1)).collect();
            at.sort_unstable();
            at
        };
        prop_assert_eq!(commands(&input, &cuts).0, whole(&input));
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_accumulate(input in prop::collection::vec(any::<u8>(), 0..20_000)) {
        let cuts: Vec<usize> = (0..input.len()).step_by(100).collect();
        let (_, most) = commands(&input, &cuts);
        prop_assert!(most <= LINE_BYTES_MAX + 100, "{most} bytes buffered");
    }
}

//! Frames a byte stream that arrives in chunks into commands.
//!
//! The result depends only on the bytes, never on the chunk boundaries.
//!
//! ```text
//!           line end              data complete
//!   Line ------------> Data(head) -------------> Line
//!    |  \                                         ^
//!    |   `-> Skip(n) ----------- n bytes later ---'
//!    `-> Closed       (quit, line too long, or binary protocol)
//! ```

use std::collections::VecDeque;

use crate::memcached::command::{self, BAD_CHUNK, Command, Line, Store, refused};
use crate::store::Refusal;

/// Bytes of a line that is no retrieval, its end not counted, at most. memcached's limit, which it
/// applies to what it has read when no line end is there yet: a longer line that comes in one piece
/// runs there and closes the connection here.
pub const LINE_BYTES_MAX: usize = 2048;

/// Maximum length of a retrieval line, which can have many keys.
pub const RETRIEVAL_BYTES_MAX: usize = 1 << 20;

/// Maximum number of spaces before a retrieval command for which the longer limit applies.
const LEADING_SPACES_MAX: usize = 100;

/// Bytes that a connection may buffer without a reservation, and the capacity that a buffer keeps.
pub const FREE_BYTES: usize = 16 * 1024;

/// The first byte of a request of memcached's binary protocol, which is not spoken here.
const BINARY: u8 = 0x80;

#[derive(Debug)]
enum State {
    /// Looking for the end of a line; the first `scanned` bytes do not contain it.
    Line { scanned: usize },
    /// Waiting for data.
    Data { store: Store, length: usize },
    /// Discarding `left` bytes, then continuing with `then`.
    Skip { left: usize, then: Vec<Command> },
    /// Ignoring all input.
    Closed,
}

/// Splits a byte stream into commands.
///
/// ```
/// use gossamer_kv::memcached::{Command, Parser};
/// let mut parser = Parser::new();
/// parser.feed(b"version\r\nvers");
/// assert!(matches!(parser.next_command(), Some(Command::Respond(text)) if text.starts_with("VERSION")));
/// assert_eq!(parser.next_command(), None);
/// parser.feed(b"ionx\r\n");
/// assert_eq!(parser.next_command(), Some(Command::Respond("ERROR\r\n")));
/// ```
#[derive(Debug)]
pub struct Parser {
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer that were consumed.
    used: usize,
    state: State,
    /// Commands that follow a skipped data block, or report one that ended wrongly.
    ready: VecDeque<Command>,
    /// Whether no byte has arrived yet.
    is_new: bool,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

impl Parser {
    /// The parser of a new connection.
    pub fn new() -> Self {
        let state = State::Line { scanned: 0 };
        Self { buffer: Vec::new(), used: 0, state, ready: VecDeque::new(), is_new: true }
    }

    /// Adds received bytes. Bytes after the end are not buffered, nor those of a data block that is
    /// skipped, once every command before it was taken.
    ///
    /// Reserve memory for as much as [`Parser::needs`] says before.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if self.is_new && !bytes.is_empty() {
            self.is_new = false;
            if bytes[0] == BINARY {
                self.close();
                self.ready.push_back(Command::Close);
            }
        }
        match &mut self.state {
            State::Closed => return,
            State::Skip { left, .. } if self.used == self.buffer.len() => {
                let skipped = (*left).min(bytes.len());
                *left -= skipped;
                bytes = &bytes[skipped..];
            }
            _ => {}
        }
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        // At once, and not more than that.
        let whole = self.expected();
        if whole > FREE_BYTES {
            self.buffer.reserve_exact((whole + bytes.len()).saturating_sub(self.buffer.len()));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes of the unfinished command, as far as it is known: a retrieval that has not ended yet may
    /// be of any length.
    fn expected(&self) -> usize {
        match &self.state {
            State::Data { length, .. } => length + 2,
            State::Line { .. } if self.buffered() > FREE_BYTES => RETRIEVAL_BYTES_MAX,
            _ => 0,
        }
    }

    /// Memory to reserve for the unfinished command before more bytes are fed; 0 if it is short.
    pub fn needs(&self) -> usize {
        match self.expected() {
            0..=FREE_BYTES => 0,
            bytes => bytes + FREE_BYTES,
        }
    }

    /// Buffered bytes. If every command is taken before the next [`Parser::feed`], these are at
    /// most the last feed plus [`RETRIEVAL_BYTES_MAX`] or the largest item.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.used
    }

    /// The next command, or `None` if more bytes are needed or the connection is closed.
    pub fn next_command(&mut self) -> Option<Command> {
        loop {
            if let Some(command) = self.ready.pop_front() {
                return Some(command);
            }
            let unread = &self.buffer[self.used..];
            match &mut self.state {
                State::Closed => return None,
                State::Skip { left, then } => {
                    let skipped = (*left).min(unread.len());
                    self.used += skipped;
                    *left -= skipped;
                    if *left > 0 {
                        self.release();
                        return None;
                    }
                    self.ready.extend(then.drain(..));
                    self.state = State::Line { scanned: 0 };
                }
                State::Data { store, length } => {
                    let block = unread.get(..*length + 2)?;
                    let (data, end) = block.split_at(*length);
                    let store = store.clone();
                    if end == b"\r\n" {
                        self.ready.push_back(store.with_data(data.to_vec()));
                    } else {
                        let text = if store.noreply { "" } else { BAD_CHUNK };
                        let is_meta = store.meta.is_some();
                        let commands = refused(store.key, Refusal::BadData, is_meta, text);
                        self.ready.extend(commands);
                    }
                    self.used += block.len();
                    self.state = State::Line { scanned: 0 };
                    self.release();
                }
                State::Line { scanned } => {
                    let end = unread[*scanned..].iter().position(|&byte| byte == b'\n');
                    let Some(end) = end.map(|end| end + *scanned) else {
                        *scanned = unread.len();
                        return if is_too_long(unread, unread.len()) { self.close() } else { None };
                    };
                    if is_too_long(unread, end) {
                        return self.close();
                    }
                    let line = unread[..end].strip_suffix(b"\r").unwrap_or(&unread[..end]);
                    let line = command::parse(line);
                    self.used += end + 1;
                    self.state = State::Line { scanned: 0 };
                    self.release();
                    match line {
                        Line::Command(Command::Close) => return self.close(),
                        Line::Command(command) => return Some(command),
                        Line::Data { store, length } => self.state = State::Data { store, length },
                        Line::Skip { length, then } => {
                            self.state = State::Skip { left: length + 2, then };
                        }
                    }
                }
            }
        }
    }

    fn close(&mut self) -> Option<Command> {
        self.state = State::Closed;
        self.buffer = Vec::new();
        self.used = 0;
        Some(Command::Close)
    }

    /// Frees memory that a long command has used.
    fn release(&mut self) {
        if self.used == self.buffer.len() {
            self.used = 0;
            self.buffer.clear();
        }
        if self.buffer.capacity() > 2 * FREE_BYTES && self.buffered() <= FREE_BYTES {
            self.buffer = self.buffer[self.used..].to_vec();
            self.used = 0;
        }
    }
}

/// Whether a line that starts with `text` and has at least `length` bytes is too long.
fn is_too_long(text: &[u8], length: usize) -> bool {
    if length <= LINE_BYTES_MAX {
        return false;
    }
    let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
    let command = &text[start..];
    let retrieves =
        [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|name| command.starts_with(name));
    !(retrieves && start <= LEADING_SPACES_MAX && length <= RETRIEVAL_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::{ITEM_BYTES_MAX, Request};

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
        let request = Request::Refused { key: b"k".to_vec(), reason, meta: false };
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
        assert_eq!((parser.next_command(), parser.needs()), (None, 1_000_002 + FREE_BYTES));
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
        assert_eq!(
            (parser.next_command(), parser.needs()),
            (None, RETRIEVAL_BYTES_MAX + FREE_BYTES)
        );
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
}

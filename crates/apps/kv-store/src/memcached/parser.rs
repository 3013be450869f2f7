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
/// use gossamer_kv_store::memcached::{Command, Parser};
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

    /// Memory to reserve for the unfinished command before more bytes are fed; 0 if it is short. A data block
    /// is there twice: as received and in the command, then in the command and in the message to its shard.
    pub fn needs(&self) -> usize {
        let copies = if matches!(self.state, State::Data { .. }) { 2 } else { 1 };
        match self.expected() {
            0..=FREE_BYTES => 0,
            bytes => copies * bytes + FREE_BYTES,
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
                State::Data { length, .. } => {
                    let block = unread.get(..*length + 2)?;
                    let (data, end) = block.split_at(*length);
                    let next = State::Line { scanned: 0 };
                    let State::Data { store, .. } = std::mem::replace(&mut self.state, next) else {
                        return None;
                    };
                    if end == b"\r\n" {
                        self.ready.push_back(store.with_data(data.to_vec()));
                    } else {
                        let text = if store.noreply { "" } else { BAD_CHUNK };
                        let is_meta = store.meta.is_some();
                        let commands = refused(store.key, Refusal::BadData, is_meta, text);
                        self.ready.extend(commands);
                    }
                    self.used += block.len();
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
mod tests;

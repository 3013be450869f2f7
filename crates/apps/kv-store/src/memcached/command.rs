//! Parses command lines.
//!
//! The order of the checks is memcached's: it determines which of several errors in a line is
//! reported and whether `noreply` suppresses it.

use crate::memcached::admin::{self, Admin};
use crate::memcached::keys::Keys;
use crate::memcached::meta::{self, Show};
use crate::store::number::{signed, unsigned};
use crate::store::{
    Direction, KEY_BYTES_MAX, Key, MetaStore, Refusal, Request, Verb, is_too_large,
};

const ERROR: &str = "ERROR\r\n";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
const VERSION: &str = concat!("VERSION ", version!(), "\r\n");
pub(super) const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk\r\n";
pub(super) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";

/// Maximum number of tokens of a line, as in memcached. Commands with more are refused by their
/// number, so further tokens make no difference; those of a retrieval are read one by one.
const TOKENS_MAX: usize = 23;

/// A complete command, including its data.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Read any number of keys, in order.
    Retrieve {
        /// The keys; those not found are omitted from the response.
        keys: Keys,
        /// The new expiry, for `gat` and `gats`.
        touch: Option<i32>,
        /// Whether to return the unique number (`gets` and `gats`).
        cas: bool,
    },
    /// A request on one key.
    Single {
        /// The request.
        request: Request,
        /// Whether to suppress the response.
        noreply: bool,
    },
    /// A meta request on one key.
    Meta {
        /// The request.
        request: Request,
        /// How to write the response.
        show: Box<Show>,
    },
    /// A command on the server or the whole store.
    Admin {
        /// The command.
        admin: Admin,
        /// Whether to suppress the response.
        noreply: bool,
    },
    /// Send this fixed response; empty if `noreply` suppresses it.
    Respond(&'static str),
    /// Close the connection.
    Close,
}

/// A parsed line: a command, or the head of one whose data follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A complete command.
    Command(Command),
    /// A data block of `length` bytes and a line end follow.
    Data {
        /// The command, without its data.
        store: Store,
        /// Bytes of data.
        length: usize,
    },
    /// A data block of `length` bytes and a line end follow; skip them, then run `then`.
    Skip {
        /// Bytes of data.
        length: usize,
        /// The commands that report the error.
        then: Vec<Command>,
    },
}

/// The head of a store command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The condition and kind of the write.
    pub verb: Verb,
    /// The key.
    pub key: Key,
    /// Flags of the item.
    pub flags: u32,
    /// Expiry as sent.
    pub exptime: i32,
    /// Whether to suppress the response.
    pub noreply: bool,
    /// Of a meta set: what it adds, and how to write the response.
    pub meta: Option<(MetaStore, Box<Show>)>,
}

impl Store {
    /// The complete command.
    pub fn with_data(self, data: Vec<u8>) -> Command {
        let Self { verb, key, flags, exptime, noreply, meta } = self;
        let (meta, show) = meta.unzip();
        let request = Request::Store { verb, key, flags, exptime, data, meta };
        match show {
            Some(show) => Command::Meta { request, show },
            None => Command::Single { request, noreply },
        }
    }
}

/// Parses a line without its line end.
///
/// ```
/// use gossamer_kv_store::memcached::command::{self, Command, Line};
/// use gossamer_kv_store::memcached::Keys;
/// let Line::Command(command) = command::parse(b"get a b") else { panic!() };
/// assert_eq!(command, Command::Retrieve { keys: Keys::new(b"a b"), touch: None, cas: false });
/// assert_eq!(command::parse(b"what?"), Line::Command(Command::Respond("ERROR\r\n")));
/// ```
pub fn parse(line: &[u8]) -> Line {
    // memcached parses lines as C strings, which end at a zero byte.
    let line = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let words = || line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let mut tokens: [&[u8]; TOKENS_MAX] = [b""; TOKENS_MAX];
    let mut count = 0;
    for (token, word) in tokens.iter_mut().zip(words()) {
        *token = word;
        count += 1;
    }
    let Some((&name, arguments)) = tokens[..count].split_first() else { return respond(ERROR) };
    let noreply = arguments.last() == Some(&&b"noreply"[..]);
    match (name, arguments.len()) {
        (&[b'm', letter], _) => meta::parse(letter, arguments),
        (b"get" | b"gets" | b"bget", 1..) => retrieve(after_words(line, 1), None, name == b"gets"),
        (b"gat" | b"gats", 1..) => match signed(arguments[0]) {
            Some(exptime) => retrieve(after_words(line, 2), Some(exptime as i32), name == b"gats"),
            None => respond(BAD_EXPTIME),
        },
        (b"set", 4 | 5) => store(Verb::Set, arguments, noreply),
        (b"add", 4 | 5) => store(Verb::Add, arguments, noreply),
        (b"replace", 4 | 5) => store(Verb::Replace, arguments, noreply),
        (b"append", 4 | 5) => store(Verb::Append, arguments, noreply),
        (b"prepend", 4 | 5) => store(Verb::Prepend, arguments, noreply),
        (b"cas", 5 | 6) => store(Verb::Cas(0), arguments, noreply),
        (b"incr", 2 | 3) => arithmetic(Direction::Increment, arguments, noreply),
        (b"decr", 2 | 3) => arithmetic(Direction::Decrement, arguments, noreply),
        (b"touch", 2 | 3) => touch(arguments, noreply),
        (b"delete", 1..=3) => delete(arguments, noreply),
        (b"flush_all", 0..=2) => flush_all(arguments, noreply),
        (b"version", _) => respond(VERSION),
        (b"quit", _) => Line::Command(Command::Close),
        // Close connections of HTTP clients instead of sending an error for every line.
        (b"GET" | b"POST", 1..) if arguments.iter().any(|word| word.starts_with(b"HTTP/")) => {
            Line::Command(Command::Close)
        }
        (b"stats", _) => match admin::stats(arguments) {
            // `noreply` is an argument as any other.
            Ok(admin) => Line::Command(Command::Admin { admin, noreply: false }),
            Err(text) => respond(text),
        },
        _ => match admin::parse(name, arguments, noreply) {
            Some(Ok(admin)) => Line::Command(Command::Admin { admin, noreply }),
            Some(Err(text)) => respond(text),
            None => respond(ERROR),
        },
    }
}

/// The commands that count a refused write, and respond.
pub(super) fn refused(key: Key, reason: Refusal, meta: bool, text: &'static str) -> Vec<Command> {
    let request = Request::Refused { key, reason, meta };
    vec![Command::Single { request, noreply: true }, Command::Respond(text)]
}

pub(super) fn respond(text: &'static str) -> Line {
    Line::Command(Command::Respond(text))
}

/// A response that `noreply` suppresses.
fn respond_unless(noreply: bool, text: &'static str) -> Line {
    respond(if noreply { "" } else { text })
}

/// What follows the first `count` words of a line.
fn after_words(mut line: &[u8], count: usize) -> &[u8] {
    for _ in 0..count {
        let start = line.iter().position(|&byte| byte != b' ').unwrap_or(line.len());
        line = &line[start..];
        let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
        line = &line[end..];
    }
    line
}

fn retrieve(keys: &[u8], touch: Option<i32>, cas: bool) -> Line {
    if keys.split(|&byte| byte == b' ').any(|key| key.len() > KEY_BYTES_MAX) {
        // One invalid key fails the whole command.
        return respond(BAD_FORMAT);
    }
    Line::Command(Command::Retrieve { keys: Keys::new(keys), touch, cas })
}

fn store(verb: Verb, arguments: &[&[u8]], noreply: bool) -> Line {
    let refuse = || respond_unless(noreply, BAD_FORMAT);
    let key = arguments[0];
    if key.len() > KEY_BYTES_MAX {
        return refuse();
    }
    let (Some(flags), Some(exptime), Some(length)) =
        (unsigned(arguments[1]), signed(arguments[2]), signed(arguments[3]))
    else {
        return refuse();
    };
    // memcached reads 64 bits and keeps the lower 32, of all three.
    let (flags, exptime, length) = (flags as u32, exptime as i32, length as i32);
    let verb = match verb {
        Verb::Cas(_) => match unsigned(arguments[4]) {
            Some(unique) => Verb::Cas(unique),
            None => return refuse(),
        },
        verb => verb,
    };
    if !(0..=i32::MAX - 2).contains(&length) {
        return refuse();
    }
    let length = length as usize;
    if is_too_large(key.len(), length, flags) {
        let reason = Refusal::TooLarge { removes: verb == Verb::Set };
        let text = if noreply { "" } else { TOO_LARGE };
        return Line::Skip { length, then: refused(Key::new(key), reason, false, text) };
    }
    let store = Store { verb, key: Key::new(key), flags, exptime, noreply, meta: None };
    Line::Data { store, length }
}

fn arithmetic(direction: Direction, arguments: &[&[u8]], noreply: bool) -> Line {
    let key = arguments[0];
    if key.len() > KEY_BYTES_MAX {
        return respond_unless(noreply, BAD_FORMAT);
    }
    let Some(delta) = unsigned(arguments[1]) else { return respond_unless(noreply, BAD_DELTA) };
    single(Request::Arithmetic { key: Key::new(key), direction, delta }, noreply)
}

fn touch(arguments: &[&[u8]], noreply: bool) -> Line {
    let key = arguments[0];
    if key.len() > KEY_BYTES_MAX {
        return respond_unless(noreply, BAD_FORMAT);
    }
    let Some(exptime) = signed(arguments[1]) else { return respond_unless(noreply, BAD_EXPTIME) };
    single(Request::Touch { key: Key::new(key), exptime: exptime as i32 }, noreply)
}

fn delete(arguments: &[&[u8]], noreply: bool) -> Line {
    // Old clients send a time, which must be 0.
    let well_formed = match arguments[1..] {
        [] => true,
        [one] => one == b"0" || noreply,
        _ => arguments[1] == b"0" && noreply,
    };
    // `noreply` counts only as a second or later argument; as the first it is a key.
    let noreply = noreply && arguments.len() > 1;
    if !well_formed {
        return respond_unless(noreply, BAD_DELETE);
    }
    if arguments[0].len() > KEY_BYTES_MAX {
        return respond_unless(noreply, BAD_FORMAT);
    }
    single(Request::Delete { key: Key::new(arguments[0]) }, noreply)
}

fn flush_all(arguments: &[&[u8]], noreply: bool) -> Line {
    let exptime = match arguments {
        [] => Some(0),
        [_] if noreply => Some(0),
        [exptime, ..] => signed(exptime),
    };
    match exptime {
        Some(exptime) => {
            let admin = Admin::FlushAll { exptime: exptime as i32 };
            Line::Command(Command::Admin { admin, noreply })
        }
        None => respond_unless(noreply, BAD_EXPTIME),
    }
}

fn single(request: Request, noreply: bool) -> Line {
    Line::Command(Command::Single { request, noreply })
}

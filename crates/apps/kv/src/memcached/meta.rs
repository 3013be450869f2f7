//! Meta commands: `mg`, `ms`, `md`, `ma`, `me`, their flags, and their responses.
//!
//! A flag is one character, some with a value. Flags that change the expiry take effect in the order
//! in which they are sent ([`Step`]); so do those that return something ([`Return`]).

use crate::memcached::base64;
use crate::memcached::command::{Command, Line, Store, TOO_LARGE, respond};
use crate::memcached::output::Output;
use crate::store::number::{Decimal, signed, unsigned};
use crate::store::{
    DATA_BYTES_MAX, Direction, KEY_BYTES_MAX, MetaItem, MetaStore, Request, Response, Step, Verb,
};

const ERROR: &str = "ERROR\r\n";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format\r\n";
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag\r\n";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key\r\n";
const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long\r\n";

/// Maximum number of words of a meta command.
const WORDS_MAX: usize = 19;

/// Maximum length of an opaque token, with its flag.
const OPAQUE_BYTES_MAX: usize = 32;

/// A part of the response that a flag asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Return {
    /// Bytes of data (s).
    Size,
    /// Seconds until the item expires (t).
    Ttl,
    /// Its unique number (c).
    Cas,
    /// Its client flags (f).
    Flags,
    /// Seconds since its last use (l).
    Idle,
    /// Whether it was read before (h).
    Hit,
    /// The key (k).
    Key,
    /// What the client sent (O).
    Opaque(Vec<u8>),
}

/// Which meta command was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `mg`.
    Get,
    /// `ms`.
    Set,
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic,
    /// `me`.
    Debug,
}

/// How to write the response to a meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Show {
    kind: Kind,
    key: Vec<u8>,
    is_binary_key: bool,
    returns: Vec<Return>,
    /// Whether to return the value (v).
    value: bool,
    /// Whether to suppress the usual response (q).
    quiet: bool,
}

/// The flags of a command.
#[derive(Default)]
struct Flags {
    key: Option<Vec<u8>>,
    steps: Vec<Step>,
    returns: Vec<Return>,
    value: bool,
    no_update: bool,
    quiet: bool,
    client_flags: u32,
    exptime: Option<i32>,
    compare: Option<u64>,
    mode: Option<u8>,
    initial: u64,
    delta: Option<u64>,
    invalidate: bool,
    opaque_too_long: bool,
}

/// Parses the words behind the key. The last of several errors counts, as in memcached, but a flag
/// that is unknown or there twice ends the parsing.
fn flags(key: &[u8], words: &[&[u8]]) -> Result<Flags, &'static str> {
    let mut flags = Flags::default();
    let mut error = None;
    let mut seen = [false; 127];
    for word in words {
        let (&name, value) = word.split_first().unwrap_or((&0, &[]));
        match seen.get_mut(usize::from(name)) {
            Some(seen @ false) => *seen = true,
            _ => return Err("CLIENT_ERROR duplicate flag\r\n"),
        }
        let mut exptime = || {
            let exptime = signed(value).map(|exptime| exptime as i32);
            if exptime.is_none() {
                error = Some(BAD_TOKEN);
            }
            exptime
        };
        match name {
            b'T' => {
                flags.exptime = exptime();
                flags.steps.extend(flags.exptime.map(Step::SetExpiry));
            }
            b'N' => flags.steps.extend(exptime().map(Step::Vivify)),
            b'R' => flags.steps.extend(exptime().map(Step::Recache)),
            b't' => {
                flags.steps.push(Step::Ttl);
                flags.returns.push(Return::Ttl);
            }
            b's' => flags.returns.push(Return::Size),
            b'c' => flags.returns.push(Return::Cas),
            b'f' => flags.returns.push(Return::Flags),
            b'l' => flags.returns.push(Return::Idle),
            b'h' => flags.returns.push(Return::Hit),
            b'k' => flags.returns.push(Return::Key),
            b'O' if word.len() > OPAQUE_BYTES_MAX => flags.opaque_too_long = true,
            b'O' => flags.returns.push(Return::Opaque(word.to_vec())),
            b'P' | b'L' => {}
            b'v' => flags.value = true,
            b'u' => flags.no_update = true,
            b'q' => flags.quiet = true,
            b'I' => flags.invalidate = true,
            b'b' => {
                flags.key = base64::decode(key);
                if flags.key.is_none() {
                    error = Some(BAD_KEY);
                }
            }
            b'F' => match unsigned(value) {
                Some(client_flags) => flags.client_flags = client_flags as u32,
                None => error = error.or(Some(BAD_FORMAT)),
            },
            b'C' => {
                flags.compare = unsigned(value);
                if flags.compare.is_none() {
                    error = Some(BAD_TOKEN);
                }
            }
            b'M' if value.len() == 1 => flags.mode = Some(value[0]),
            b'M' => error = Some("CLIENT_ERROR incorrect length for M token\r\n"),
            b'J' => match unsigned(value) {
                Some(initial) => flags.initial = initial,
                None => error = Some("CLIENT_ERROR invalid numeric initial value\r\n"),
            },
            b'D' => {
                flags.delta = unsigned(value);
                if flags.delta.is_none() {
                    error = Some("CLIENT_ERROR invalid numeric delta value\r\n");
                }
            }
            _ => return Err("CLIENT_ERROR invalid flag\r\n"),
        }
    }
    error.map_or(Ok(flags), Err)
}

impl Flags {
    /// The key, and how to write the response.
    fn show(&mut self, kind: Kind, key: &[u8]) -> (Vec<u8>, Show) {
        let is_binary_key = self.key.is_some();
        let key = self.key.take().unwrap_or_else(|| key.to_vec());
        let returns = std::mem::take(&mut self.returns);
        let show = Show {
            kind,
            key: key.clone(),
            is_binary_key,
            returns,
            value: self.value,
            quiet: self.quiet,
        };
        (key, show)
    }
}

/// Parses the arguments of a meta command whose second letter is `letter`.
pub(super) fn parse(letter: u8, arguments: &[&[u8]]) -> Line {
    let parsed = match (letter, arguments.split_first()) {
        (b'n', _) => return respond("MN\r\n"),
        (b'g', Some((key, rest))) => get(key, rest),
        (b's', Some((key, rest))) => return set(key, rest),
        (b'd', Some((key, rest))) => delete(key, rest),
        (b'a', Some((key, rest))) => arithmetic(key, rest),
        (b'e', Some((key, rest))) => debug(key, rest),
        (b'e', None) => Err(BAD_FORMAT),
        _ => Err(ERROR),
    };
    parsed.map_or_else(respond, |(request, show)| Line::Command(Command::Meta { request, show }))
}

/// Refuses a long key, and a command of too many words.
fn check(key: &[u8], rest: &[&[u8]], too_many: &'static str) -> Result<(), &'static str> {
    if key.len() > KEY_BYTES_MAX {
        return Err(BAD_FORMAT);
    }
    if rest.len() + 2 > WORDS_MAX { Err(too_many) } else { Ok(()) }
}

const TOO_MANY: &str = "CLIENT_ERROR options flags too long\r\n";

fn get(key: &[u8], rest: &[&[u8]]) -> Result<(Request, Show), &'static str> {
    check(key, rest, "CLIENT_ERROR options flags are too long\r\n")?;
    let mut flags = flags(key, rest)?;
    if flags.opaque_too_long {
        return Err(OPAQUE_TOO_LONG);
    }
    let (key, show) = flags.show(Kind::Get, key);
    let request = Request::MetaGet {
        key,
        binary_key: show.is_binary_key,
        max_bytes: flags.value.then_some(0),
        no_update: flags.no_update,
        steps: flags.steps,
    };
    Ok((request, show))
}

fn delete(key: &[u8], rest: &[&[u8]]) -> Result<(Request, Show), &'static str> {
    check(key, rest, TOO_MANY)?;
    let mut flags = flags(key, rest).map_err(|_| BAD_FLAG)?;
    if flags.opaque_too_long {
        return Err(OPAQUE_TOO_LONG);
    }
    let (key, show) = flags.show(Kind::Delete, key);
    let invalidate = flags.invalidate.then_some(flags.exptime);
    Ok((Request::MetaDelete { key, compare: flags.compare, invalidate }, show))
}

fn arithmetic(key: &[u8], rest: &[&[u8]]) -> Result<(Request, Show), &'static str> {
    check(key, rest, TOO_MANY)?;
    let mut flags = flags(key, rest).map_err(|_| BAD_FLAG)?;
    let direction = match flags.mode {
        None | Some(b'I' | b'+') => Direction::Increment,
        Some(b'D' | b'-') => Direction::Decrement,
        Some(_) => return Err("CLIENT_ERROR invalid mode for ma M token\r\n"),
    };
    if flags.opaque_too_long {
        return Err(OPAQUE_TOO_LONG);
    }
    let (key, show) = flags.show(Kind::Arithmetic, key);
    let request = Request::MetaArithmetic {
        key,
        direction,
        delta: flags.delta.unwrap_or(1),
        compare: flags.compare.unwrap_or(0),
        initial: flags.initial,
        steps: flags.steps,
    };
    Ok((request, show))
}

fn debug(key: &[u8], rest: &[&[u8]]) -> Result<(Request, Show), &'static str> {
    if key.len() > KEY_BYTES_MAX {
        return Err(BAD_FORMAT);
    }
    let is_binary_key = rest.first() == Some(&&b"b"[..]);
    let key = match is_binary_key {
        true => base64::decode(key).ok_or(BAD_FORMAT)?,
        false => key.to_vec(),
    };
    let mut flags = Flags { key: Some(key.clone()), ..Flags::default() };
    let (key, show) = flags.show(Kind::Debug, &key);
    Ok((Request::MetaDebug { key }, show))
}

fn set(key: &[u8], rest: &[&[u8]]) -> Line {
    let length = match rest.split_first() {
        Some((length, _)) if key.len() <= KEY_BYTES_MAX => signed(length),
        _ => return respond(BAD_FORMAT),
    };
    if rest.len() + 2 > WORDS_MAX {
        return respond(TOO_MANY);
    }
    let length = length.map(|length| length as i32).filter(|length| *length <= i32::MAX - 2);
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
        return respond(BAD_FORMAT);
    };
    // From here on, the data follows whatever is wrong.
    let skip = |error| Line::Skip { length, then: vec![Command::Respond(error)] };
    let mut flags = match flags(key, &rest[1..]) {
        Ok(flags) => flags,
        Err(error) => return skip(error),
    };
    let verb = match (flags.mode, flags.compare) {
        (None | Some(b'S' | b'R'), Some(unique)) => Verb::Cas(unique),
        (None | Some(b'S'), None) => Verb::Set,
        (Some(b'R'), None) => Verb::Replace,
        (Some(b'E'), _) => Verb::Add,
        (Some(b'A'), _) => Verb::Append,
        (Some(b'P'), _) => Verb::Prepend,
        (Some(_), _) => return skip("CLIENT_ERROR invalid mode for ms M token\r\n"),
    };
    if flags.opaque_too_long {
        return skip(OPAQUE_TOO_LONG);
    }
    let (key, show) = flags.show(Kind::Set, key);
    if length > DATA_BYTES_MAX {
        // The old value must not be served after an attempt to replace it.
        let discard = Command::Single { request: Request::Discard { key }, noreply: true };
        return Line::Skip { length, then: vec![discard, Command::Respond(TOO_LARGE)] };
    }
    let meta = MetaStore {
        compare: flags.compare.unwrap_or(0),
        invalidate: flags.invalidate,
        binary_key: show.is_binary_key,
    };
    let (flags, exptime) = (flags.client_flags, flags.exptime.unwrap_or(0));
    let store =
        Store { verb, key, flags, exptime, noreply: false, meta: Some((meta, Box::new(show))) };
    Line::Data { store, length }
}

impl Show {
    /// Writes the response.
    pub(super) fn write(&self, response: &Response, output: &mut Output) {
        let status: &[u8] = match (response, self.kind) {
            (Response::Meta(item), Kind::Debug) => return self.write_debug(item, output),
            (Response::Meta(item), _) => return self.write_item(item, output),
            (Response::MetaNumber { number, cas, ttl, is_created }, _) => {
                if !self.quiet || *is_created {
                    self.write_number(*number, *cas, *ttl, output);
                }
                return;
            }
            (Response::Miss, Kind::Debug) => return output.push(b"EN\r\n"),
            (Response::Miss, _) if self.quiet => return,
            (Response::Miss, _) => b"EN",
            (Response::MetaStored { .. } | Response::Deleted, _) if self.quiet => return,
            (Response::MetaStored { .. } | Response::Deleted, _) => b"HD",
            (Response::NotStored, _) => b"NS",
            (Response::Exists, _) => b"EX",
            (Response::NotFound, _) => b"NF",
            (Response::TooLarge, _) => return output.push(TOO_LARGE.as_bytes()),
            (Response::OutOfMemory, Kind::Set) => {
                return output.push(b"SERVER_ERROR out of memory storing object\r\n");
            }
            (Response::NotNumeric, _) => {
                return output
                    .push(b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
            }
            _ => return output.push(b"SERVER_ERROR out of memory\r\n"),
        };
        output.push(status);
        let cas = match response {
            Response::MetaStored { cas } => *cas,
            _ => 0,
        };
        for part in &self.returns {
            match part {
                Return::Key => self.write_key(self.is_binary_key, output),
                Return::Opaque(token) => write_part(token, &[], output),
                Return::Cas if self.kind == Kind::Set => {
                    write_part(b"c", Decimal::new(cas).as_bytes(), output);
                }
                _ => {}
            }
        }
        output.push(b"\r\n");
    }

    fn write_key(&self, is_binary: bool, output: &mut Output) {
        if is_binary {
            write_part(b"k", &base64::encode(&self.key), output);
            output.push(b" b");
        } else {
            write_part(b"k", &self.key, output);
        }
    }

    fn write_item(&self, item: &MetaItem, output: &mut Output) {
        match &item.data {
            Some(data) => {
                output.push(b"VA ");
                output.push(Decimal::new(data.len() as u64).as_bytes());
            }
            None => output.push(b"HD"),
        }
        for part in &self.returns {
            let mut number = |name, value| write_part(name, Decimal::new(value).as_bytes(), output);
            match part {
                Return::Size => number(b"s", item.bytes.into()),
                Return::Cas => number(b"c", item.cas),
                Return::Flags => number(b"f", item.flags.into()),
                Return::Idle => number(b"l", item.idle.into()),
                Return::Hit => number(b"h", item.is_fetched.into()),
                Return::Ttl => write_ttl(item.ttl, output),
                Return::Key => self.write_key(item.is_binary_key, output),
                Return::Opaque(token) => write_part(token, &[], output),
            }
        }
        for (is_set, mark) in
            [(item.is_token_sent, b" Z"), (item.is_stale, b" X"), (item.is_won, b" W")]
        {
            if is_set {
                output.push(mark);
            }
        }
        output.push(b"\r\n");
        if let Some(data) = &item.data {
            output.push_data(data);
            output.push(b"\r\n");
        }
    }

    fn write_number(&self, number: u64, cas: u64, ttl: i64, output: &mut Output) {
        let digits = Decimal::new(number);
        let digits = digits.as_bytes();
        if self.value {
            output.push(b"VA ");
            output.push(Decimal::new(digits.len() as u64).as_bytes());
        } else {
            output.push(b"HD");
        }
        for part in &self.returns {
            match part {
                Return::Cas => write_part(b"c", Decimal::new(cas).as_bytes(), output),
                Return::Ttl => write_ttl(ttl, output),
                Return::Key => self.write_key(self.is_binary_key, output),
                Return::Opaque(token) => write_part(token, &[], output),
                _ => {}
            }
        }
        output.push(b"\r\n");
        if self.value {
            output.push(digits);
            output.push(b"\r\n");
        }
    }

    fn write_debug(&self, item: &MetaItem, output: &mut Output) {
        output.push(b"ME ");
        match item.is_binary_key {
            true => output.push(&base64::encode(&self.key)),
            false => output.push(&self.key),
        }
        // As in memcached 1.6.18, the time since the expiry.
        let expiry = if item.ttl < 0 { -1 } else { -item.ttl };
        let fetched = if item.is_fetched { "yes" } else { "no" };
        let MetaItem { idle, cas, memory, .. } = item;
        let text =
            format!(" exp={expiry} la={idle} cas={cas} fetch={fetched} cls=1 size={memory}\r\n");
        output.push(text.as_bytes());
    }
}

fn write_part(name: &[u8], value: &[u8], output: &mut Output) {
    output.push(b" ");
    output.push(name);
    output.push(value);
}

fn write_ttl(ttl: i64, output: &mut Output) {
    match u64::try_from(ttl) {
        Ok(seconds) => write_part(b"t", Decimal::new(seconds).as_bytes(), output),
        Err(_) => output.push(b" t-1"),
    }
}

//! Meta commands: `mg`, `ms`, `md`, `ma`, `me`, and their flags; `show.rs` writes their responses.
//!
//! A flag is one character, some with a value. Flags that change the expiry take effect in the order
//! in which they are sent ([`Step`]); so do those that return something ([`Return`]).

mod show;

pub use show::{Kind, Return, Show};

use crate::memcached::base64;
use crate::memcached::command::{Command, Line, Store, TOO_LARGE, refused, respond};
use crate::store::number::{signed, unsigned};
use crate::store::{
    Direction, KEY_BYTES_MAX, Key, MetaStore, Refusal, Request, Step, Verb, is_too_large,
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

/// The flags of a command.
#[derive(Default)]
struct Flags {
    key: Option<Key>,
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
                flags.key = base64::decode(key).map(|key| Key::new(&key));
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
    fn show(&mut self, kind: Kind, key: &[u8]) -> (Key, Show) {
        let is_binary_key = self.key.is_some();
        let key = self.key.take().unwrap_or_else(|| Key::new(key));
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
    parsed.map_or_else(respond, |(request, show)| {
        Line::Command(Command::Meta { request, show: Box::new(show) })
    })
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
        true => Key::new(&base64::decode(key).ok_or(BAD_FORMAT)?),
        false => Key::new(key),
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
    if is_too_large(key.len(), length, flags.client_flags) {
        let reason = Refusal::TooLarge { removes: true };
        return Line::Skip { length, then: refused(key, reason, true, TOO_LARGE) };
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

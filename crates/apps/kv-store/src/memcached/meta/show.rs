//! [`Show`]: which response a meta command wants, and how it is written.

use crate::memcached::base64;
use crate::memcached::command::TOO_LARGE;
use crate::memcached::output::Output;
use crate::store::number::Decimal;
use crate::store::{Key, MetaItem, Response};

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
    pub(super) kind: Kind,
    pub(super) key: Key,
    pub(super) is_binary_key: bool,
    pub(super) returns: Vec<Return>,
    /// Whether to return the value (v).
    pub(super) value: bool,
    /// Whether to suppress the usual response (q).
    pub(super) quiet: bool,
}

impl Show {
    /// Writes the response.
    pub(in crate::memcached) fn write(&self, response: &Response, output: &mut Output) {
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

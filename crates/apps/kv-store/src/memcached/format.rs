//! [`Format`]: how the response to a command is written.

use crate::memcached::meta::Show;
use crate::memcached::output::Output;
use crate::store::number::Decimal;
use crate::store::{Key, Request, Response};

/// How to write the response to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Format {
    /// As a retrieval's: `VALUE`, with the key, maybe with the unique number, and with the end of the
    /// retrieval behind the last one.
    Value { key: Key, touch: Option<i32>, cas: bool, is_last: bool },
    /// As a classic command's, or not at all.
    Single { noreply: bool },
    /// As a meta command's.
    Meta(Box<Show>),
    /// This text.
    Text(&'static str),
}

impl Format {
    /// The request of a retrieval, for data of so many bytes.
    pub(super) fn request(&self, max_bytes: u32) -> Option<Request> {
        let Format::Value { key, touch, .. } = self else { return None };
        let key = key.clone();
        Some(match *touch {
            None => Request::Get { key, max_bytes },
            Some(exptime) => Request::GetAndTouch { key, exptime, max_bytes },
        })
    }

    /// Writes the response.
    pub(super) fn write(&self, response: &Response, output: &mut Output) {
        match self {
            Format::Text(text) => output.push(text.as_bytes()),
            Format::Single { noreply: true } => {}
            Format::Single { noreply: false } => write_response(response, output),
            Format::Meta(show) => show.write(response, output),
            Format::Value { key, cas, is_last, .. } => {
                write_value(key, response, *cas, output);
                if *is_last {
                    output.push(b"END\r\n");
                }
            }
        }
    }
}

fn write_value(key: &[u8], response: &Response, with_cas: bool, output: &mut Output) {
    let Response::Value { flags, cas, data } = response else { return };
    output.push(b"VALUE ");
    output.push(key);
    output.push(b" ");
    output.push(Decimal::new(u64::from(*flags)).as_bytes());
    output.push(b" ");
    output.push(Decimal::new(data.len() as u64).as_bytes());
    if with_cas {
        output.push(b" ");
        output.push(Decimal::new(*cas).as_bytes());
    }
    output.push(b"\r\n");
    output.push_data(data);
    output.push(b"\r\n");
}

fn write_response(response: &Response, output: &mut Output) {
    let text = match response {
        Response::Stored => "STORED\r\n",
        Response::NotStored => "NOT_STORED\r\n",
        Response::Exists => "EXISTS\r\n",
        Response::NotFound | Response::Miss => "NOT_FOUND\r\n",
        Response::Deleted => "DELETED\r\n",
        Response::Touched => "TOUCHED\r\n",
        Response::NotNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Response::TooLarge => crate::memcached::command::TOO_LARGE,
        Response::OutOfMemory => "SERVER_ERROR out of memory storing object\r\n",
        Response::Number(number) => {
            output.push(Decimal::new(*number).as_bytes());
            "\r\n"
        }
        _ => "OK\r\n",
    };
    output.push(text.as_bytes());
}

//! Jams as a candidate: the two of the paper (Grodowitz et al. 2021), Server-Side Sum and Indirect Put,
//! and one of a word in and a word out, in each form.
//!
//! In reading order:
//! - [`Function`], [`Form`]: what runs, and how it gets there.
//! - [`calls`]: calls of a property of another host of a rack, beside `apply` of the same functions.
//! - [`frames`]: what two hosts send to each other's mailboxes, and [`Work`](frames::FramePlan); `ends`,
//!   `writes`: how they do it.
//! - [`suites`]: the paper's figures over one transport; [`tail`]: its latencies on a loaded machine, and
//!   the processor time of waiting; [`arrival`]: what the arrival of code costs.

pub mod arrival;
pub mod calls;
pub(in crate::product) mod ends;
pub mod frames;
pub mod suites;
pub mod tail;
mod writes;

use gossamer::jam::Mode;
use serde::{Deserialize, Serialize};

/// Bytes of payloads.
pub const PAYLOADS: [usize; 5] = [4, 64, 512, 4 << 10, 32 << 10];

/// Keys that Indirect Put uses.
pub(in crate::product) const KEYS: u64 = 64;
/// Bytes of the table: payloads of neighbouring keys overlap, and the last one fits.
pub(in crate::product) const TABLE: usize = 1 << 20;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Function {
    /// Adds up the payload.
    Sum,
    /// Puts the payload where the slot of a key says.
    Put,
    /// The slot of a key, without a payload, by a function that the jam imports.
    Slot,
    /// A word of mixed bits, by a few instructions of the jam's own.
    Mixed,
}

/// In which form it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// Jam: each call carries the code.
    Injected,
    /// Jam: the first call carries the code.
    Cached,
    /// The jam's Local Function.
    Local,
    /// A delegated closure.
    Apply,
}

const FUNCTIONS: [Function; 4] = [Function::Sum, Function::Put, Function::Slot, Function::Mixed];
const FORMS: [Form; 4] = [Form::Local, Form::Cached, Form::Injected, Form::Apply];

impl Function {
    /// Its name in the report.
    pub fn text(self) -> &'static str {
        match self {
            Function::Sum => "Server-Side Sum",
            Function::Put => "Indirect Put",
            Function::Slot => "a word in and out",
            Function::Mixed => "a word mixed",
        }
    }
}

impl Form {
    /// Its name in the report.
    pub fn text(self) -> &'static str {
        match self {
            Form::Injected => "Injected",
            Form::Cached => "Cached",
            Form::Local => "Local",
            Form::Apply => "apply",
        }
    }

    /// As jams are sent; closures are not.
    pub(in crate::product) fn mode(self) -> Mode {
        match self {
            Form::Injected => Mode::Injected,
            Form::Cached | Form::Apply => Mode::Automatic,
            Form::Local => Mode::Local,
        }
    }
}

/// A number of bytes as the names of cases have it.
pub(in crate::product) fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KiB", bytes / 1024) }
}

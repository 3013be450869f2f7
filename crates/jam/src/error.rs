//! What can go wrong with a jam: at its receiver ([`Refusal`], [`Panicked`]), which both travel back,
//! and for its sender ([`JamError`]).
//!
//! An error prints its own level; `source()` is the next one.

use std::any::Any;
use std::fmt;

use jam_format::{Digest, FunctionKind, Machine, functions_in};
use primitive::drop_payload;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use trust_core::{DelegateError, PanicReport};

/// Why a call of a jam has no result.
#[derive(Debug, Clone, Error)]
pub enum JamError {
    /// The jam panicked, or a function that it called did. The property is as the jam left it; it
    /// and its trustee go on. Destructors of the jam's own frames have not run.
    #[error("jam {jam} panicked")]
    Panicked {
        /// The jam's name.
        jam: String,
        /// Where, and with what message.
        source: Panicked,
    },
    /// The receiver refused the jam before any of it ran.
    #[error("jam {jam} was refused by its receiver")]
    Refused {
        /// The jam's name.
        jam: String,
        /// Why.
        source: Refusal,
    },
    /// The call did not reach the property, or its result did not come back.
    #[error("jam {jam} could not be delegated")]
    Delegate {
        /// The jam's name.
        jam: String,
        /// Why.
        source: DelegateError,
    },
    /// The sender has no code for the rack's processors.
    #[error("jam {jam} has no code for {machine}: build its package for that machine")]
    NoCode {
        /// The jam's name.
        jam: String,
        /// The machine of this process, as every host of the rack has it.
        machine: &'static str,
    },
    /// A package or blob does not have the jam that the caller expects.
    #[error("cannot use jam {jam}: {reason}")]
    Unusable {
        /// The jam's name.
        jam: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Where a jam panicked, and what it said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Error)]
pub struct Panicked {
    /// The message; empty if the jam's was not a literal, since formatting is not part of a jam.
    pub message: String,
    /// The source file; empty if it is not known.
    pub file: String,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
    /// The column, from 1; 0 if it is not known.
    pub column: u32,
}

/// Instead of the message of a panic of injected code that is not a literal.
const NOT_FORMATTED: &str =
    "a panic whose message has format arguments, which a jam does not format";

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Panicked { message, file, line, column } = self;
        let message = if message.is_empty() { NOT_FORMATTED } else { message };
        f.write_str(message)?;
        if *line > 0 { write!(f, ", at {file}:{line}:{column}") } else { Ok(()) }
    }
}

impl Panicked {
    /// What the sender gets of a panic of the program's code, which was caught here. Its payload is freed.
    #[cold]
    pub(crate) fn of_payload(payload: Box<dyn Any + Send>) -> Self {
        let PanicReport { message, place } = PanicReport::of(&*payload);
        drop_payload(payload);
        let Some(place) = place else { return Panicked { message, ..Panicked::default() } };
        Panicked { message, file: place.file.into(), line: place.line, column: place.column }
    }
}

/// Why a receiver does not run a jam.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// Its bytes are not a jam.
    #[error("its blob is malformed: {reason}")]
    Malformed {
        /// What is wrong, as the parser says it.
        reason: String,
    },
    /// Its bytes are not those that its sender named.
    #[error("its bytes have digest {found}, expected {claimed}")]
    Digest {
        /// The sender's.
        claimed: String,
        /// That of the bytes that arrived.
        found: String,
    },
    /// The policy of the receiver does not admit it.
    #[error("its code is not admitted: {reason}")]
    Policy {
        /// The policy, and what to do.
        reason: String,
    },
    /// It is for other processors.
    #[error("its code is for {wanted}, this host is {found}")]
    Machine {
        /// What it needs.
        wanted: String,
        /// What the receiver is.
        found: String,
    },
    /// The processor lacks something.
    #[error("its code needs the processor features {missing}, which this host lacks")]
    Features {
        /// Their names.
        missing: String,
    },
    /// It calls something that the receiver does not have.
    #[error(
        "no function {} here: export it with `jam::export!`, or load a ried that has it",
        function(symbol, types, signature)
    )]
    MissingSymbol {
        /// The name.
        symbol: String,
        /// The signature that the jam was built with.
        signature: SignatureHash,
        /// Its types as text, such as `(&mut Table, u64) -> u64`; empty if the sender does not know
        /// them.
        types: String,
    },
    /// It calls something that the receiver has with other types.
    #[error(
        "the jam expects {}, the receiver exports {}: build both with the same types",
        function(symbol, wanted_types, wanted),
        function(symbol, found_types, found)
    )]
    WrongSignature {
        /// The name.
        symbol: String,
        /// The signature that the jam was built with.
        wanted: SignatureHash,
        /// That of the newest function of this name.
        found: SignatureHash,
        /// The types of the first as text; empty if the sender does not know them.
        wanted_types: String,
        /// Those of the second; empty if the receiver does not know them.
        found_types: String,
    },
    /// It takes other arguments, payload or result than its sender says.
    #[error("its entry has signature {found}, its sender wants {wanted}")]
    WrongEntry {
        /// The sender's.
        wanted: SignatureHash,
        /// The blob's.
        found: SignatureHash,
    },
    /// It works on another type of property.
    #[error("it works on a property {wanted:?}, this one is {found:?}")]
    WrongProperty {
        /// What the jam works on.
        wanted: String,
        /// What the trust refers to.
        found: String,
    },
    /// The arena is full of jams that are running, or has less room than the jam needs.
    #[error(
        "no room for its {bytes} bytes of code: the receiver's memory for code is full, or smaller \
         than that; send it again later, or make it smaller"
    )]
    NoRoom {
        /// Bytes of text and data.
        bytes: u64,
    },
    /// The system has no memory for code.
    #[error("no memory for code: {reason}")]
    NoMemory {
        /// The system's error.
        reason: String,
    },
    /// Its entry did not take the call.
    #[error("its entry returned code {code}: the lengths of the call are not those of its types")]
    Entry {
        /// As in [`jam_abi::code`].
        code: u32,
    },
    /// It was to run as a Local Function, and the program does not include its package.
    #[error(
        "no Local Function of it in this program: include its package with `jam::package!`, or use \
         another mode"
    )]
    NotLocal,
    /// It was to run as a Local Function, and is a jam in C whose package `Builder` has built, without
    /// Local Functions.
    #[error(
        "its package has no Local Functions of jams in C: build it with `jam_build::package`, or use \
         another mode"
    )]
    NoLocalInC,
    /// The policy of the receiver may admit it, but that cannot be judged at this moment.
    #[error("its code is not admitted now: {reason}")]
    NotNow {
        /// What keeps the receiver from it.
        reason: String,
    },
}

/// The hash of a function's types, which a receiver compares. It is shown in hexadecimal, as
/// `gossamer jam inspect` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignatureHash(pub u64);

impl fmt::Display for SignatureHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SignatureHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A function by its name, types and signature, for people.
fn function(name: &str, types: &str, signature: &SignatureHash) -> String {
    match types {
        "" => format!("{name:?} with signature {signature}"),
        types => format!("`fn {}{}` ({signature})", shown(name), shown(types)),
    }
}

/// Text of the other side, with escapes for what would change how the text around it is shown.
fn shown(text: &str) -> String {
    let escaped =
        |c: char| if jam_format::is_layout(c) { format!("{}", c.escape_debug()) } else { c.into() };
    text.chars().map(escaped).collect()
}

impl Refusal {
    /// With the types that the jam wants, of which its sender has this text.
    pub(crate) fn explained(mut self, text: &str) -> Self {
        let types_of = |symbol: &str| {
            let mut imports = functions_in(text).filter(|f| f.kind == FunctionKind::Import);
            imports.find(|import| import.name == symbol).map(|import| import.types.to_owned())
        };
        match &mut self {
            Refusal::MissingSymbol { symbol, types, .. }
            | Refusal::WrongSignature { symbol, wanted_types: types, .. } => {
                *types = types_of(symbol).unwrap_or_default();
            }
            _ => {}
        }
        self
    }

    /// Whether the same code may be taken later though nothing changes that judgements depend on.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Refusal::NoRoom { .. } | Refusal::NoMemory { .. } | Refusal::NotNow { .. })
    }

    pub(crate) fn digest(claimed: Digest, found: Digest) -> Self {
        Refusal::Digest { claimed: claimed.to_string(), found: found.to_string() }
    }

    /// Code for another machine than this.
    pub(crate) fn machine(wanted: Machine) -> Self {
        let found = Machine::CURRENT.map_or(std::env::consts::ARCH, Machine::name).to_owned();
        Refusal::Machine { wanted: wanted.to_string(), found }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::panic::{catch_unwind, resume_unwind};

    use super::*;

    #[test]
    fn errors_have_levels() {
        let source = Refusal::WrongSignature {
            symbol: "slot".into(),
            wanted: SignatureHash(1),
            found: SignatureHash(0xab),
            wanted_types: String::new(),
            found_types: "(&Table) -> u64".into(),
        };
        let error = JamError::Refused { jam: "put".into(), source: source.clone() };
        assert_eq!(error.to_string(), "jam put was refused by its receiver");
        assert_eq!(
            error.source().unwrap().to_string(),
            "the jam expects \"slot\" with signature 0000000000000001, the receiver exports \
             `fn slot(&Table) -> u64` (00000000000000ab): build both with the same types"
        );
        let debug = format!("{source:?}");
        assert!(debug.contains("wanted: 0000000000000001, found: 00000000000000ab,"), "{debug}");
        let text = "3 entry slot ()\n3 import rows (u8)\n3 import slot (&mut Table) -> u64\n";
        assert_eq!(
            source.explained(text).to_string(),
            "the jam expects `fn slot(&mut Table) -> u64` (0000000000000001), the receiver exports \
             `fn slot(&Table) -> u64` (00000000000000ab): build both with the same types"
        );
        let types = "(u8)\u{1b}[2J\n\u{202e}".into();
        let hostile =
            Refusal::MissingSymbol { symbol: "ro\rws".into(), signature: SignatureHash(7), types };
        let shown = hostile.to_string();
        assert!(shown.contains("`fn ro\\rws(u8)\\u{1b}[2J\\n\\u{202e}` ("), "{shown}");
        let missing = Refusal::MissingSymbol {
            symbol: "rows".into(),
            signature: SignatureHash(7),
            types: String::new(),
        };
        assert!(missing.to_string().starts_with("no function \"rows\" with signature 0"));
        let missing = missing.explained(text).to_string();
        assert!(missing.starts_with("no function `fn rows(u8)` (0000000000000007) here"));
    }

    #[test]
    fn a_panic_says_where() {
        let mut panicked =
            Panicked { message: "no".into(), file: "a.rs".into(), line: 3, column: 9 };
        assert_eq!(panicked.to_string(), "no, at a.rs:3:9");
        panicked.message.clear();
        panicked.line = 0;
        assert_eq!(panicked.to_string(), NOT_FORMATTED);
    }

    #[test]
    fn a_panic_of_the_program_has_its_place() {
        fiber::note_panics();
        let panicked = |run: fn()| Panicked::of_payload(catch_unwind(run).unwrap_err());
        let (of_text, line) = (panicked(|| panic!("text")), line!());
        assert_eq!((&of_text.message[..], of_text.line), ("text", line), "{of_text}");
        assert_eq!(of_text.file, file!());
        let resumed = panicked(|| resume_unwind(Box::new("resumed")));
        let expected = Panicked { message: "resumed".into(), ..Panicked::default() };
        assert_eq!(resumed, expected);
    }
}

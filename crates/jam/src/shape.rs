//! [`Shape`]: what a call of a jam must be like, as its blob says.
//!
//! A blob is believed once the policy admits it: who answers for its code answers for its header too.

use jam_abi::{Call, code};

use crate::error::Refusal;

/// The types of a jam, by hash, name and sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The hash of all of them.
    pub(crate) signature: u64,
    /// The name of its property; empty for none.
    pub(crate) property: Box<str>,
    args: usize,
    element: usize,
    reply: usize,
}

impl Shape {
    pub(crate) fn of(blob: &jam_format::Parsed<'_>) -> Self {
        Shape {
            signature: blob.entry_signature(),
            property: blob.property().unwrap_or_default().into(),
            args: blob.args_bytes() as usize,
            element: blob.element_bytes() as usize,
            reply: blob.reply_bytes() as usize,
        }
    }

    /// Checks the lengths of a call, whose arguments and payload a peer has sent.
    #[inline]
    pub(crate) fn check_lengths(&self, call: &Call) -> Result<(), Refusal> {
        // Most payloads are bytes: no division for those.
        let is_whole = match self.element {
            0 => call.payload_len == 0,
            1 => true,
            size => call.payload_len.is_multiple_of(size),
        };
        match () {
            () if call.args_len != self.args => Err(Refusal::Entry { code: code::ARGS_LENGTH }),
            () if !is_whole => Err(Refusal::Entry { code: code::PAYLOAD_LENGTH }),
            () if call.reply_capacity < self.reply => {
                Err(Refusal::Entry { code: code::REPLY_CAPACITY })
            }
            () => Ok(()),
        }
    }
}

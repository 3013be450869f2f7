//! [`Frame`]: what travels through a ring, as words.

use primitive::limits::MESSAGE_BYTES;
use transport_api::Notice;

/// What a frame says before its payload.
#[derive(Clone, Copy)]
pub(crate) enum Frame {
    /// A payload of `len` bytes follows.
    Bulk { tag: u64, len: usize },
    /// No payload follows.
    Notify(Notice),
}

impl Frame {
    pub(super) fn words(self) -> [u64; 4] {
        match self {
            Frame::Bulk { tag, len } => [1, tag, len as u64, 0],
            Frame::Notify(notice) => {
                let [kind, key, at] = notice.words();
                [kind, key, at, notice.value.into()]
            }
        }
    }

    pub(super) fn parse(words: [u64; 4]) -> Option<Frame> {
        match words {
            [1, tag, len, 0] if len <= MESSAGE_BYTES as u64 => {
                Some(Frame::Bulk { tag, len: len as usize })
            }
            [kind, key, at, value] => {
                let value = u32::try_from(value).ok()?;
                Notice::parse([kind, key, at], value).map(Frame::Notify)
            }
        }
    }
}

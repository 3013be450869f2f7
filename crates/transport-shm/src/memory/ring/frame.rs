//! [`Frame`] and [`Notice`]: what travels through a ring and through notice slots, as words.

use primitive::limits::MESSAGE_BYTES;
use transport_api::{RegionKey, SlotMessage};

/// What a frame says before its payload.
#[derive(Clone, Copy)]
pub(crate) enum Frame {
    /// A payload of `len` bytes follows.
    Bulk { tag: u64, len: usize },
    /// No payload follows.
    Notify(Notice),
}

/// What a notification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) key: RegionKey,
    pub(crate) at: u64,
    /// Bytes that were written, fewer than 2^56.
    pub(crate) len: u64,
    pub(crate) value: u32,
}

impl Notice {
    #[inline]
    pub(super) fn message(self) -> SlotMessage {
        let Notice { key, at, len, value } = self;
        SlotMessage { words: [2 | len << 8, key.0, at], value }
    }

    #[inline]
    pub(super) fn parse(
        SlotMessage { words: [kind, key, at], value }: SlotMessage,
    ) -> Option<Notice> {
        let notice = Notice { key: RegionKey(key), at, len: kind >> 8, value };
        (kind & 0xff == 2).then_some(notice)
    }
}

impl Frame {
    pub(super) fn words(self) -> [u64; 4] {
        match self {
            Frame::Bulk { tag, len } => [1, tag, len as u64, 0],
            Frame::Notify(notice) => {
                let SlotMessage { words: [kind, key, at], value } = notice.message();
                [kind, key, at, value.into()]
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
                Notice::parse(SlotMessage { words: [kind, key, at], value }).map(Frame::Notify)
            }
        }
    }
}

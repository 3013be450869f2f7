//! Claims: which sender has a bank set.
//!
//! ```text
//!   word 0      | holder: host + 1, or 0 if free | epoch: how often the set was claimed |
//!   words 1-4   | the same word | number of the flags | mode | checksum |      the hello of the sender
//!   word 5      | sequence number behind the last frame | epoch |              once the sender is done
//!   word 6      | as word 0, if the sender waits for its release |
//!   word 7      | sequence number of the frame that the sender sleeps for | epoch |
//! ```
//!
//! A sender claims a free set by a compare-and-swap of word 0, which raises the epoch, and then says
//! hello by one write of the words behind it. The receiver frees the set by a store of word 0 with no
//! holder: a compare-and-swap succeeds on a free set only, so the two never meet. The epoch is part of
//! every frame's tag, so that frames of an earlier sender are not taken for frames of this one.
//!
//! A sender whose memory is not mapped cannot be asked whether it sleeps, so it says so in word 7.
//!
//! The host in word 0 is what the sender says; the receiver needs it to free the set of a host that is
//! lost before it has said hello. It also frees a set whose sender says no hello in time, or is done
//! without one, because its hello has failed.

use std::time::Duration;

use gossamer_segment::Name;
use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::HostId;
use transport_api::integrity::checksum_of;

use crate::frame::Mode;
use crate::layout::WORD;

/// Words of a hello, and where it is in a claim.
const HELLO_WORDS: usize = 4;
pub(crate) const HELLO: usize = WORD;
pub(crate) const HELLO_BYTES: usize = HELLO_WORDS * WORD;

/// Where a claim has the end of its sender.
pub(crate) const DONE: usize = HELLO + HELLO_BYTES;

/// How long a receiver waits for the hello of a sender that has claimed a bank set.
pub(crate) const HELLO_WITHIN: Duration = Duration::from_secs(30);

/// Where a claim has that its sender waits for its release.
pub(crate) const AWAITED: usize = DONE + WORD;

/// Where a claim has which frame its sender sleeps for, until the bank of that is empty.
pub(crate) const SLEEPS_FOR: usize = AWAITED + WORD;

/// Word 0 of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim(pub(crate) u64);

impl Claim {
    /// How often the set was claimed.
    pub(crate) fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The host that says it has the set; `None` if the set is free.
    pub(crate) fn holder(self) -> Option<HostId> {
        (self.0 as u32).checked_sub(1).map(HostId)
    }

    /// The claim of `host` after this one, which is free.
    pub(crate) fn next(self, host: HostId) -> Claim {
        // Epoch 0 is that of a set that was never claimed, whose memory is zero.
        let epoch = self.epoch().wrapping_add(1).max(1);
        Claim(u64::from(epoch) << 32 | (u64::from(host.0) + 1))
    }

    /// This claim without a holder.
    pub(crate) fn freed(self) -> Claim {
        Claim(self.0 >> 32 << 32)
    }

    /// The word for frame `next` under this claim. A sender stores it in [`DONE`] for the frame after its
    /// last, and in [`SLEEPS_FOR`] for the frame that it sleeps until it may write.
    pub(crate) fn frame_word(self, next: u64) -> u64 {
        u64::from(self.epoch()) << 32 | u64::from(next as u32)
    }

    /// The low half of the number of the frame in `word`, if that is of this claim.
    pub(crate) fn frame_of(self, word: u64) -> Option<u32> {
        ((word >> 32) as u32 == self.epoch()).then_some(word as u32)
    }
}

/// The name of the flags with this number.
pub(crate) fn flags_name(number: u64) -> String {
    format!("mailbox.flags/{number}")
}

/// A word that a sender has in its flags, so that no other sender can have the receiver write to them:
/// the mailbox, the bank set and its claim.
pub(crate) fn identity(name: &Name, generation: u32, set: u32, claim: Claim) -> u64 {
    let bytes = name.as_str().as_bytes();
    let mut words = [0; Name::MAX_LEN / WORD + 3];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(WORD)) {
        *word = bytes.iter().fold(1, |word: u64, byte| word << 8 | u64::from(*byte));
    }
    words[Name::MAX_LEN / WORD..].copy_from_slice(&[generation.into(), set.into(), claim.0]);
    checksum_of(words.len(), |at| words[at])
}

/// What a sender says about itself when it has claimed a bank set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) claim: Claim,
    /// The number in the name of its flags.
    pub(crate) flags: u64,
    pub(crate) mode: Mode,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut words = [self.claim.0, self.flags, self.mode as u64, 0];
        words[3] = checksum_of(3, |at| words[at]);
        let mut bytes = [0; HELLO_BYTES];
        for (word, bytes) in words.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.to_ne_bytes();
        }
        bytes
    }

    /// The hello of the sender that has `claim`, which is at byte `at` of `memory`, once it has come.
    pub(crate) fn read(memory: &SharedBytes, at: usize, claim: Claim) -> Option<Hello> {
        let mut words = [0; HELLO_WORDS];
        for (number, word) in words.iter_mut().enumerate() {
            *word = memory.load(at + HELLO + number * WORD, Ordering::Acquire);
        }
        let is_intact = words[3] == checksum_of(3, |at| words[at]);
        let mode = Mode::ALL.into_iter().find(|mode| *mode as u64 == words[2])?;
        let hello = Hello { claim, flags: words[1], mode };
        (is_intact && words[0] == claim.0).then_some(hello)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_torn_hello_or_one_of_another_claim_is_not_read() {
        let claim = Claim(0).next(HostId(3));
        let (memory, at) = (SharedBytes::heap(2 * HELLO_BYTES), 16);
        for mode in Mode::ALL {
            let hello = Hello { claim, flags: 7, mode };
            memory.write_from(at + HELLO, &hello.encode());
            assert_eq!(Hello::read(&memory, at, claim), Some(hello));
            let later = claim.freed().next(HostId(3));
            assert_eq!(Hello::read(&memory, at, later), None, "of the sender before");
            for byte in 0..HELLO_BYTES {
                let mut torn = hello.encode();
                torn[byte] ^= 1;
                memory.write_from(at + HELLO, &torn);
                assert_eq!(Hello::read(&memory, at, claim), None, "byte {byte}");
            }
        }
    }
}

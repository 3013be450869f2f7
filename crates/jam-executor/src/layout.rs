//! Where everything is in the process of an executor, and in the memory that it shares with this one.
//!
//! ```text
//!   address          region          the process   this process
//!   STUB             the program     r-x           -
//!   TEXT             jams' text      r-x           rw-            1 MiB
//!   DATA             jams' data      r--           rw-            1 MiB, DATA_DISTANCE after TEXT
//!   REQUEST          what to run     r--           rw-
//!   CALL             the call, its arguments and payload, what came back
//!                                    rw-           rw-
//!   SIGNAL_STACK     where the program notes faults
//!                                    rw-           rw-
//!   (guard)
//!   STACK            the jam's stack rw-           rw-
//!   SCRATCH          the scratch     rw-           rw-
//! ```
//!
//! All but the program are parts of one memfd, in this order. Addresses are constants: the process has
//! nothing to hide from a jam. Everything that the process may write is a claim of whatever jam runs.

/// The unit of regions: the largest page of a supported machine.
pub(crate) const UNIT: usize = 64 << 10;

/// Bytes of text, and of data.
pub(crate) const HALF: usize = 1 << 20;

pub(crate) const STUB: u64 = 0x10_0000_0000;
pub(crate) const TEXT: u64 = 0x10_1000_0000;
pub(crate) const DATA: u64 = TEXT + HALF as u64;
pub(crate) const REQUEST: u64 = 0x10_1800_0000;
pub(crate) const CALL: u64 = 0x10_2000_0000;
pub(crate) const SIGNAL_STACK: u64 = 0x10_3000_0000;
pub(crate) const STACK: u64 = 0x10_4000_0000;
pub(crate) const SCRATCH: u64 = 0x10_8000_0000;
/// The end of the last region.
pub(crate) const END: u64 = 0x10_c000_0000;

/// The longest payload, stack and scratch, in bytes: what the addresses leave room for.
pub(crate) const MAX_PAYLOAD: usize = (SIGNAL_STACK - CALL) as usize - 2 * UNIT;
pub(crate) const MAX_STACK: usize = (SCRATCH - STACK) as usize - UNIT;
pub(crate) const MAX_SCRATCH: usize = (END - SCRATCH) as usize;

/// Offsets in the request.
pub(crate) mod request {
    /// The address of the entry (u64).
    pub(crate) const ENTRY: usize = 0;
    /// Where its text begins and ends (u64 each).
    pub(crate) const TEXT_START: usize = 8;
    pub(crate) const TEXT_END: usize = 16;
    /// The end of the stack (u64).
    pub(crate) const STACK_TOP: usize = 24;
    /// Those of [`extension`](super::extension) that the processor has (u64).
    pub(crate) const EXTENSIONS: usize = 32;
}

/// Bits of extensions of aarch64 whose registers keep their values in system calls, so that they are set
/// before each run. They are those of the kernel's `AT_HWCAP2`, which the crate `libc` does not have.
pub(crate) mod extension {
    /// `HWCAP2_SME`: the matrix `ZA`, the thread register `TPIDR2_EL0`.
    pub(crate) const SME: u32 = 23;
    /// `HWCAP2_FPMR`: the mode of numbers of eight bits.
    pub(crate) const FPMR: u32 = 48;
    /// `HWCAP2_POE`: `POR_EL0`, what the process may do with pages of each key.
    pub(crate) const POE: u32 = 63;
}

/// Offsets in the call. The process writes the first block, this one the rest.
pub(crate) mod call {
    /// How many steps of its setup the process has made (u32).
    pub(crate) const PROGRESS: usize = 0;
    /// What came back (u32): one of [`kind`](super::kind).
    pub(crate) const KIND: usize = 4;
    /// Six words that say more.
    pub(crate) const WORDS: usize = 8;
    /// Where the process puts the byte that it waits for.
    pub(crate) const WAITED: usize = 56;
    /// Whether the process is about to call the entry (u32): before it is, no jam has had the call.
    pub(crate) const BEGAN: usize = 60;
    /// Bytes of the log that are in use (u64).
    pub(crate) const LOG_USED: usize = 64;
    /// The [`Call`](jam_abi::Call), its context, and the scratch as a property.
    pub(crate) const CALL: usize = 128;
    pub(crate) const CONTEXT: usize = 224;
    pub(crate) const SCRATCH: usize = 248;
    /// The result.
    pub(crate) const REPLY: usize = 272;
    /// Lines of the log: length (u32) and text each.
    pub(crate) const LOG: usize = 1024;
    pub(crate) const LOG_BYTES: usize = 3072;
    pub(crate) const ARGS: usize = 4096;
    /// The payload, to the end.
    pub(crate) const PAYLOAD: usize = 8192;
}

/// What came back.
pub(crate) mod kind {
    /// The entry returned: word 0 is its code.
    pub(crate) const RETURNED: u32 = 1;
    /// It panicked: the words are the parameters of `__jam_panic`.
    pub(crate) const PANICKED: u32 = 2;
    /// A signal: number, code, address, system call, instruction, stack pointer.
    pub(crate) const SIGNALLED: u32 = 3;
}

/// The sizes of an executor's regions, in bytes: multiples of [`UNIT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) payload: usize,
    pub(crate) stack: usize,
    pub(crate) scratch: usize,
}

/// A region, as the process has it and in the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) address: u64,
    /// In the memory.
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) is_writable: bool,
    pub(crate) is_executable: bool,
}

impl Sizes {
    /// In the order of the memory; the scratch is the last.
    pub(crate) fn regions(&self) -> [Region; 7] {
        let mut at = 0;
        let mut region = |address, len, is_writable, is_executable| {
            let region = Region { address, at, len, is_writable, is_executable };
            at += len;
            region
        };
        [
            region(TEXT, HALF, false, true),
            region(DATA, HALF, false, false),
            region(REQUEST, UNIT, false, false),
            region(CALL, UNIT + self.payload, true, false),
            region(SIGNAL_STACK, UNIT, true, false),
            region(STACK, self.stack, true, false),
            region(SCRATCH, self.scratch, true, false),
        ]
    }

    /// Where a region is in the memory.
    pub(crate) fn offset_of(&self, address: u64) -> usize {
        let regions = self.regions();
        let region = regions.iter().find(|region| region.address == address);
        region.expect("the address of a region").at
    }

    /// Bytes of the memory.
    pub(crate) fn total(&self) -> usize {
        self.regions().iter().map(|region| region.len).sum()
    }

    /// Where in the memory the process has these bytes; `None` if they are not inside one region.
    pub(crate) fn find(&self, address: u64, len: usize) -> Option<usize> {
        self.regions().iter().find_map(|region| {
            let offset = usize::try_from(address.checked_sub(region.address)?).ok()?;
            let end = offset.checked_add(len)?;
            (end <= region.len).then_some(region.at + offset)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { payload: UNIT, stack: 2 * UNIT, scratch: UNIT };

    #[test]
    fn regions_do_not_overlap() {
        let largest = Sizes { payload: MAX_PAYLOAD, stack: MAX_STACK, scratch: MAX_SCRATCH };
        for sizes in [SIZES, largest] {
            let regions = sizes.regions();
            for two in regions.windows(2) {
                assert!(two[0].address + two[0].len as u64 <= two[1].address, "{two:?}");
                assert_eq!(two[0].at + two[0].len, two[1].at);
                assert!(two[0].at.is_multiple_of(UNIT) && two[0].len.is_multiple_of(UNIT));
            }
            assert!(regions[6].address + regions[6].len as u64 <= END);
            assert!(regions.iter().all(|region| !(region.is_writable && region.is_executable)));
        }
        assert_eq!(DATA - TEXT, u64::from(jam_format::DATA_DISTANCE));
    }

    #[test]
    fn a_claimed_range_is_inside_one_region() {
        assert_eq!(SIZES.find(DATA + 5, 10), Some(HALF + 5));
        assert_eq!(SIZES.find(SCRATCH, UNIT), Some(SIZES.total() - UNIT));
        for (address, len) in [
            (0, 1),
            (SCRATCH, UNIT + 1),
            (STACK - 1, 2),
            (TEXT + HALF as u64 - 1, 2),
            (u64::MAX, 2),
            (CALL, usize::MAX),
        ] {
            assert_eq!(SIZES.find(address, len), None, "{address:x} {len}");
        }
    }
}

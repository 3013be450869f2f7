//! [`Running`]: the process of an executor with its memory, what is linked there, and its result.

use std::mem::offset_of;

use jam_abi::{Call, code};
use primitive::sync::Ordering;

use crate::claims::Claims;
use crate::code::Code;
use crate::error::ExecutorError;
use crate::layout::{CALL, SCRATCH, Sizes, call};
use crate::memory::Memory;
use crate::process::Process;

/// A process with its memory, and what is linked there.
pub(crate) struct Running {
    pub(crate) process: Process,
    pub(crate) memory: Memory,
    pub(crate) code: Code,
    /// Whether a jam has had the scratch since it was cleared.
    pub(crate) is_scratch_used: bool,
}

impl Running {
    /// Whether the process was about to call the jam's entry, or has called it; a jam can deny it.
    pub(crate) fn has_begun(&self, sizes: &Sizes) -> bool {
        let began = self.memory.bytes.word32(sizes.offset_of(CALL) + call::BEGAN);
        began.load(Ordering::Acquire) != 0
    }

    /// What the jam returned.
    pub(crate) fn result(
        &self,
        sizes: &Sizes,
        name: &str,
        claims: &Claims,
        reply: &mut [u8],
    ) -> Result<(), ExecutorError> {
        let memory = &self.memory.bytes;
        if let Some(source) = claims.panic(memory, sizes) {
            return Err(ExecutorError::Panicked { jam: name.to_owned(), source });
        }
        let wrong = |found: String, expected: String| {
            Err(ExecutorError::Reply { jam: name.to_owned(), found, expected })
        };
        let done = u64::from(code::DONE);
        match claims.code() {
            Some(code) if code & u64::from(u32::MAX) == done => {}
            Some(code) => return wrong(format!("code {}", code as u32), format!("code {done}")),
            None => return wrong("no code".to_owned(), format!("code {done}")),
        }
        let at = sizes.offset_of(CALL);
        let len = memory.load(at + call::CALL + REPLY_LEN, Ordering::Relaxed);
        if len != reply.len() as u64 {
            return wrong(format!("a result of {len} bytes"), format!("{}", reply.len()));
        }
        memory.read_into(at + call::REPLY, reply);
        Ok(())
    }

    /// Replaces the process, and clears all of its memory but the scratch.
    pub(crate) fn take_over(
        &mut self,
        process: Process,
        sizes: &Sizes,
    ) -> Result<(), ExecutorError> {
        // This ends the other process: nothing fetches the code any more that is cleared.
        self.process = process;
        self.code = Code::default();
        self.clear(0, sizes.offset_of(SCRATCH))
    }

    /// Clears what the jam and its call have left, but for the scratch.
    pub(crate) fn clear_call(&self, sizes: &Sizes) -> Result<(), ExecutorError> {
        let start = sizes.offset_of(CALL);
        self.clear(start, sizes.offset_of(SCRATCH) - start)
    }

    /// Clears the scratch if a jam has had it.
    pub(crate) fn clear_scratch(&mut self, sizes: &Sizes) -> Result<(), ExecutorError> {
        if self.is_scratch_used {
            self.clear(sizes.offset_of(SCRATCH), sizes.scratch)?;
            self.is_scratch_used = false;
        }
        Ok(())
    }

    fn clear(&self, at: usize, len: usize) -> Result<(), ExecutorError> {
        self.memory.clear(at, len).map_err(|source| ExecutorError::Connection { source })
    }
}

/// Where [`Call`] has the length of the result.
const REPLY_LEN: usize = offset_of!(Call, reply_len);

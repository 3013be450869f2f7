//! What came back from the process, which may be anything: it is copied out once, and then checked.

use jam::Panicked;
use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::code::Linked;
use crate::error::Fault;
use crate::layout::{self, CALL, SIGNAL_STACK, STACK, Sizes, UNIT, call, kind};

/// The longest text of a panic that is kept, in bytes.
const MAX_TEXT: usize = 4096;
/// `si_code` of a forbidden system call.
const SYS_SECCOMP: u64 = 1;

/// What the process notes when a call ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    kind: u32,
    words: [u64; 6],
}

/// Which kind of fault ended the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Crash,
    StackOverflow,
    Memory,
    SystemCall(i64),
}

impl Claims {
    /// Copies them out.
    pub(crate) fn read(memory: &SharedBytes, sizes: &Sizes) -> Claims {
        let at = sizes.offset_of(CALL);
        let kind = memory.word32(at + call::KIND).load(Ordering::Acquire);
        let word = |index| memory.load(at + call::WORDS + 8 * index, Ordering::Relaxed);
        Claims { kind, words: std::array::from_fn(word) }
    }

    /// The code that the entry returned.
    pub(crate) fn code(&self) -> Option<u64> {
        (self.kind == kind::RETURNED).then_some(self.words[0])
    }

    /// The panic, whose texts are copied if they are where a jam can have some.
    pub(crate) fn panic(&self, memory: &SharedBytes, sizes: &Sizes) -> Option<Panicked> {
        if self.kind != kind::PANICKED {
            return None;
        }
        let [message, message_len, file, file_len, line, column] = self.words;
        let text = |address, len: u64| {
            let len = usize::try_from(len).map_or(MAX_TEXT, |len| len.min(MAX_TEXT));
            let Some(at) = sizes.find(address, len) else { return String::new() };
            let mut bytes = vec![0; len];
            memory.read_into(at, &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (message, file) = (text(message, message_len), text(file, file_len));
        Some(Panicked { message, file, line: line as u32, column: column as u32 })
    }

    /// The fault that ended the process, and its cause; `signal` is what the system says.
    pub(crate) fn fault(
        &self,
        signal: Option<i32>,
        linked: &Linked,
        sizes: &Sizes,
    ) -> (Cause, Fault) {
        if self.kind != kind::SIGNALLED {
            let killed = signal == Some(libc::SIGKILL);
            let cause = if killed { Cause::Memory } else { Cause::Crash };
            return (cause, Fault { signal, ..Fault::default() });
        }
        let [number, code, address, system_call, instruction, _] = self.words;
        let inside = (linked.text..linked.text_end).contains(&instruction);
        let offset = inside.then(|| instruction - linked.text);
        let number = i32::try_from(number).unwrap_or(0);
        let mut fault = Fault { signal: Some(number), address: None, offset };
        let cause = match number {
            libc::SIGSYS if code == SYS_SECCOMP => Cause::SystemCall(system_call as i64),
            libc::SIGSEGV | libc::SIGBUS => {
                fault.address = Some(address);
                let guard = SIGNAL_STACK + UNIT as u64..STACK;
                if number == libc::SIGBUS && sizes.find(address, 1).is_some() {
                    Cause::Memory
                } else if number == libc::SIGSEGV && guard.contains(&address) {
                    Cause::StackOverflow
                } else {
                    Cause::Crash
                }
            }
            _ => Cause::Crash,
        };
        (cause, fault)
    }
}

/// The lines that the jam logged, as far as they are there.
pub(crate) fn log(memory: &SharedBytes, sizes: &Sizes, mut line: impl FnMut(&str)) {
    let at = sizes.offset_of(layout::CALL);
    let used = memory.load(at + call::LOG_USED, Ordering::Acquire);
    let used = usize::try_from(used).map_or(call::LOG_BYTES, |used| used.min(call::LOG_BYTES));
    if used == 0 {
        return;
    }
    let mut bytes = vec![0; used];
    memory.read_into(at + call::LOG, &mut bytes);
    let mut rest = &bytes[..];
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        let len = (u32::from_ne_bytes(*len) as usize).min(behind.len());
        line(&String::from_utf8_lossy(&behind[..len]));
        rest = &behind[len..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DATA, SCRATCH, TEXT};

    const SIZES: Sizes = Sizes { payload: UNIT, stack: UNIT, scratch: UNIT };
    const LINKED: Linked = Linked { entry: TEXT, text: TEXT, text_end: TEXT + 64, signature: 0 };

    fn signalled(words: [u64; 6]) -> Claims {
        Claims { kind: kind::SIGNALLED, words }
    }

    #[test]
    fn a_forged_panic_reads_nothing_else() {
        let memory = SharedBytes::heap(SIZES.total());
        memory.write_from(SIZES.offset_of(DATA), b"message");
        let claims = |words| Claims { kind: kind::PANICKED, words };
        let panic = claims([DATA, 7, 0, 9, 3, 4]).panic(&memory, &SIZES).unwrap();
        let expected =
            Panicked { message: "message".into(), file: String::new(), line: 3, column: 4 };
        assert_eq!(panic, expected);
        let end = SCRATCH + UNIT as u64;
        for words in [[end - 2, 7, 1, 1, 0, 0], [u64::MAX, u64::MAX, TEXT - 1, 2, 0, 0]] {
            assert_eq!(claims(words).panic(&memory, &SIZES).unwrap(), Panicked::default());
        }
    }

    #[test]
    fn faults_have_causes() {
        let fault = |words| signalled(words).fault(None, &LINKED, &SIZES);
        let (segv, bus) = (libc::SIGSEGV as u64, libc::SIGBUS as u64);
        assert_eq!(fault([segv, 1, 8, 0, TEXT + 4, 0]).0, Cause::Crash);
        assert_eq!(fault([segv, 1, STACK - 8, 0, TEXT, 0]).0, Cause::StackOverflow);
        assert_eq!(fault([bus, 2, SCRATCH, 0, TEXT, 0]).0, Cause::Memory);
        assert_eq!(fault([bus, 2, 8, 0, TEXT, 0]).0, Cause::Crash);
        assert_eq!(fault([libc::SIGSYS as u64, 1, 0, 41, TEXT, 0]).0, Cause::SystemCall(41));
        let (cause, found) = fault([u64::MAX; 6]);
        assert_eq!((cause, found.offset, found.address), (Cause::Crash, None, None));
        assert_eq!(fault([segv, 1, 8, 0, TEXT + 4, 0]).1.offset, Some(4));
    }

    #[test]
    fn a_forged_log_has_the_lines_that_are_there() {
        let memory = SharedBytes::heap(SIZES.total());
        let at = SIZES.offset_of(CALL);
        let lines = || {
            let mut lines = Vec::new();
            log(&memory, &SIZES, |line| lines.push(line.to_owned()));
            lines
        };
        assert!(lines().is_empty());
        memory.write_from(at + call::LOG, b"\x02\0\0\0hi\xff\xff\xff\xffx");
        memory.store(at + call::LOG_USED, 11, Ordering::Relaxed);
        assert_eq!(lines(), ["hi", "x"]);
        memory.store(at + call::LOG_USED, u64::MAX, Ordering::Relaxed);
        assert_eq!(lines()[0], "hi");
    }
}

//! The seccomp filter: which system calls the process may make.
//!
//! There are three, each at one instruction of the program and, where that matters, with constant
//! arguments. All else raises `SIGSYS`, whose handler notes the number. A filter sees the number, the
//! architecture, the address after the instruction and the arguments, and can read no memory, so
//! nothing that it decides on can change behind its back.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP,
};

use crate::layout::{CALL, call};
use crate::stub::{ENDED, Labels};

/// As the kernel names this machine (`linux/audit.h`). The 32-bit system calls of x86-64 have another
/// name, and those of x32 other numbers.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// Offsets in `seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const INSTRUCTION: u32 = 8;
const ARGUMENTS: u32 = 16;

/// One instruction: code, instructions to skip if equal, and if not, value; as `sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction(u16, u8, u8, u32);

impl Instruction {
    pub(crate) fn bytes(self) -> [u8; 8] {
        let Instruction(code, equal, other, value) = self;
        let ([a, b], [c, d, e, f]) = (code.to_ne_bytes(), value.to_ne_bytes());
        [a, b, equal, other, c, d, e, f]
    }
}

const fn load(offset: u32) -> Instruction {
    Instruction((BPF_LD | BPF_W | BPF_ABS) as u16, 0, 0, offset)
}

/// Goes on if the loaded word is this one, else skips so many instructions.
const fn expect(value: u32, skip: usize) -> Instruction {
    Instruction((BPF_JMP | BPF_JEQ | BPF_K) as u16, 0, skip as u8, value)
}

const fn end(value: u32) -> Instruction {
    Instruction((BPF_RET | BPF_K) as u16, 0, 0, value)
}

/// The filter for a program with these labels.
pub(crate) fn filter(labels: &Labels) -> Vec<Instruction> {
    let one_byte = |address: u64| vec![(0, 1), (1, address), (2, 1)];
    let admitted: Vec<_> = [
        admit(libc::SYS_write, labels.ended, one_byte(ENDED)),
        admit(libc::SYS_read, labels.waited, one_byte(CALL + call::WAITED as u64)),
        admit(libc::SYS_exit_group, labels.exited, Vec::new()),
    ]
    .concat();
    let mut filter = vec![load(ARCH), expect(ARCHITECTURE, admitted.len())];
    filter.extend(admitted);
    filter.push(end(SECCOMP_RET_TRAP));
    filter
}

/// Admits a system call at one instruction, with these arguments.
fn admit(number: i64, at: u64, arguments: Vec<(u32, u64)>) -> Vec<Instruction> {
    let mut words = vec![(NUMBER, number as u32)];
    let arguments = arguments.into_iter().map(|(index, value)| (ARGUMENTS + 8 * index, value));
    for (offset, value) in [(INSTRUCTION, at)].into_iter().chain(arguments) {
        words.extend([(offset, value as u32), (offset + 4, (value >> 32) as u32)]);
    }
    let mut block = Vec::new();
    for (index, (offset, value)) in words.iter().enumerate() {
        // After it: the other words, and the end.
        let rest = 2 * (words.len() - index - 1) + 1;
        block.extend([load(*offset), expect(*value, rest)]);
    }
    block.push(end(SECCOMP_RET_ALLOW));
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::labels;

    /// What the filter says of a system call.
    fn run(filter: &[Instruction], data: &[u8; 64]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let Instruction(code, equal, other, value) = filter[at];
            at += 1;
            match u32::from(code) {
                code if code == BPF_RET | BPF_K => return value,
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    let word = data[value as usize..].first_chunk().unwrap();
                    loaded = u32::from_ne_bytes(*word);
                }
                _ => at += usize::from(if loaded == value { equal } else { other }),
            }
        }
    }

    fn call(arch: u32, number: i64, at: u64, arguments: [u64; 3]) -> [u8; 64] {
        let mut data = [0; 64];
        data[..4].copy_from_slice(&(number as u32).to_ne_bytes());
        data[4..8].copy_from_slice(&arch.to_ne_bytes());
        data[8..16].copy_from_slice(&at.to_ne_bytes());
        for (index, value) in arguments.iter().enumerate() {
            data[16 + 8 * index..24 + 8 * index].copy_from_slice(&value.to_ne_bytes());
        }
        data
    }

    #[test]
    fn three_calls_are_admitted_and_no_other() {
        let labels = labels();
        let filter = filter(&labels);
        let waited = CALL + call::WAITED as u64;
        let good = [
            (libc::SYS_write, labels.ended, [1, ENDED, 1]),
            (libc::SYS_read, labels.waited, [1, waited, 1]),
            (libc::SYS_exit_group, labels.exited, [7, 8, 9]),
        ];
        for (number, at, arguments) in good {
            let said = |arch, number, at, arguments| {
                run(&filter, &super::tests::call(arch, number, at, arguments))
            };
            assert_eq!(said(ARCHITECTURE, number, at, arguments), SECCOMP_RET_ALLOW);
            let other_machine = said(ARCHITECTURE ^ 1, number, at, arguments);
            let other_place =
                [at + 1, at + (1 << 32)].map(|at| said(ARCHITECTURE, number, at, arguments));
            let other_call = (0..500)
                .filter(|other| *other != number)
                .map(|other| said(ARCHITECTURE, other, at, arguments));
            let mut denied: Vec<_> = other_call.chain(other_place).collect();
            denied.push(other_machine);
            if number != libc::SYS_exit_group {
                for index in 0..3 {
                    for change in [1 << 1, 1 << 40] {
                        let mut others = arguments;
                        others[index] ^= change;
                        denied.push(said(ARCHITECTURE, number, at, others));
                    }
                }
            }
            assert!(denied.iter().all(|said| *said == SECCOMP_RET_TRAP), "{number}");
        }
    }
}

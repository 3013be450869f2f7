//! Classifies one instruction for counting.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::mark::MAGIC;

/// The longest x86 instruction, in bytes.
pub(super) const LONGEST: usize = 15;

/// The properties of an instruction that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    /// An atomic read-modify-write of memory.
    pub(super) locked: bool,
    /// It waits until all earlier stores of the core are visible, and changes nothing: an `mfence`,
    /// or a locked `or` of 0 to the own stack, which compilers take instead.
    pub(super) fence: bool,
    /// It enters the kernel.
    pub(super) syscall: bool,
    /// It repeats itself, and every repetition is a step of its own.
    pub(super) repeats: bool,
    /// It is a mark.
    pub(super) mark: Option<u16>,
}

/// Decodes the instruction at the start of `bytes`; `None` if they are not an instruction.
pub(super) fn kind(bytes: &[u8]) -> Option<Kind> {
    if let [0x0f, 0x1f, 0x80, a, b, c, d, ..] = *bytes {
        let operand = u32::from_le_bytes([a, b, c, d]);
        if operand & 0xffff_0000 == MAGIC {
            return Some(Kind { mark: Some(operand as u16), ..Kind::default() });
        }
    }
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    let mnemonic = instruction.mnemonic();
    let on_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    let locked = instruction.has_lock_prefix() || (mnemonic == Mnemonic::Xchg && on_memory);
    let fence = mnemonic == Mnemonic::Mfence || (locked && is_fence(&instruction));
    Some(Kind {
        locked: locked && !fence,
        fence,
        syscall: matches!(mnemonic, Mnemonic::Syscall | Mnemonic::Sysenter)
            || instruction.code() == Code::Int_imm8,
        repeats: instruction.is_string_instruction()
            && (instruction.has_rep_prefix() || instruction.has_repne_prefix()),
        mark: None,
    })
}

/// Whether a locked instruction serves as a full fence only.
fn is_fence(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Or
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && matches!(
            instruction.op1_kind(),
            OpKind::Immediate8 | OpKind::Immediate8to32 | OpKind::Immediate32
        )
        && instruction.immediate(1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(bytes: &[u8]) -> Kind {
        kind(bytes).expect("an instruction")
    }

    #[test]
    fn locks_are_seen_with_and_without_a_prefix() {
        assert!(kind_of(&[0xf0, 0x48, 0x01, 0x07]).locked, "lock add [rdi], rax");
        assert!(kind_of(&[0xf0, 0x48, 0x0f, 0xb1, 0x0f]).locked, "lock cmpxchg [rdi], rcx");
        assert!(kind_of(&[0x48, 0x87, 0x07]).locked, "xchg [rdi], rax");
        assert!(!kind_of(&[0x48, 0x87, 0xc3]).locked, "xchg rbx, rax");
        assert!(!kind_of(&[0x48, 0x01, 0x07]).locked, "add [rdi], rax");
    }

    #[test]
    fn fences_are_told_from_locks() {
        let mfence: &[u8] = &[0x0f, 0xae, 0xf0];
        let locked_or: &[u8] = &[0xf0, 0x83, 0x4c, 0x24, 0xc0, 0x00];
        for (bytes, name) in [(mfence, "mfence"), (locked_or, "lock or dword [rsp - 64], 0")] {
            assert!(kind_of(bytes).fence && !kind_of(bytes).locked, "{name}");
        }
        let one = kind_of(&[0xf0, 0x83, 0x4c, 0x24, 0xc0, 0x01]);
        assert!(one.locked && !one.fence, "lock or dword [rsp - 64], 1");
        let elsewhere = kind_of(&[0xf0, 0x83, 0x08, 0x00]);
        assert!(elsewhere.locked && !elsewhere.fence, "lock or dword [rax], 0");
    }

    #[test]
    fn kernel_entries_and_repetitions_are_seen() {
        assert!(kind_of(&[0x0f, 0x05]).syscall, "syscall");
        assert!(kind_of(&[0xcd, 0x80]).syscall, "int 0x80");
        assert!(!kind_of(&[0xcc]).syscall, "int3");
        assert!(kind_of(&[0xf3, 0xa4]).repeats, "rep movsb");
        assert!(!kind_of(&[0xa4]).repeats, "movsb");
        assert!(!kind_of(&[0xf3, 0x90]).repeats, "pause");
        assert!(!kind_of(&[0xf3, 0xc3]).repeats, "rep ret");
    }

    #[test]
    fn only_our_own_nops_are_marks() {
        assert_eq!(kind_of(&[0x0f, 0x1f, 0x80, 7, 0, 0x55, 0x7a]).mark, Some(7));
        assert_eq!(kind_of(&[0x0f, 0x1f, 0x80, 7, 0, 0, 0]).mark, None);
        assert_eq!(kind(&[0x06]), None, "no instruction in 64-bit mode");
    }
}

//! What differs between the machines: the kinds of relocations, the bits that each fills, and thunks.
//!
//! x86-64 by its ELF ABI supplement, version 1.0; aarch64 by ELF for the Arm 64-bit Architecture.

use jam_format::Machine;

/// How a relocation of a kind is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word of this many bytes: an address, which only the receiver knows.
    Address { bytes: usize },
    /// A word of this many bytes: the distance from the place.
    Distance { bytes: usize },
    /// A word of 4 bytes: the distance from the place to the slot.
    SlotDistance,
    /// An instruction of ARM.
    Instruction { from: Source, field: Field },
    /// The address of a thread-local value.
    ThreadLocal,
    /// An instruction with an absolute address.
    Absolute,
}

/// What the field of an instruction contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The distance from the place to the target.
    Distance,
    /// The distance from the page of the place to the page of the target.
    Pages,
    /// The distance from the page of the place to the page of the slot.
    SlotPages,
    /// The target's offset in its page.
    InPage,
    /// The slot's offset in its page.
    SlotInPage,
}

/// Where in an instruction a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// `bits` bits from bit `at` on, of the value divided by 4.
    Branch { bits: u32, at: u32 },
    /// ADR: 21 bits, the two lowest at 29, the others at 5.
    Adr,
    /// ADRP: the same, of the value divided by 4096.
    Adrp,
    /// An immediate of 12 bits at 10, of the value divided by this power of two.
    Low { shift: u32 },
}

impl Kind {
    /// The kind with this number; `None` if no jam should have it.
    pub(super) fn of(machine: Machine, number: u32) -> Option<Self> {
        match machine {
            Machine::X86_64 => x86_64(number),
            Machine::Aarch64 => aarch64(number),
        }
    }
}

fn x86_64(number: u32) -> Option<Kind> {
    Some(match number {
        1 => Kind::Address { bytes: 8 },
        2 | 4 => Kind::Distance { bytes: 4 },
        9 | 41..=43 => Kind::SlotDistance,
        10 | 11 => Kind::Absolute,
        24 => Kind::Distance { bytes: 8 },
        16..=23 | 34..=36 | 44 | 45 => Kind::ThreadLocal,
        _ => return None,
    })
}

fn aarch64(number: u32) -> Option<Kind> {
    let instruction = |from, field| Kind::Instruction { from, field };
    Some(match number {
        257 => Kind::Address { bytes: 8 },
        258 | 259 | 263..=270 => Kind::Absolute,
        260 => Kind::Distance { bytes: 8 },
        261 | 314 => Kind::Distance { bytes: 4 },
        262 => Kind::Distance { bytes: 2 },
        273 => instruction(Source::Distance, Field::Branch { bits: 19, at: 5 }),
        274 => instruction(Source::Distance, Field::Adr),
        275 | 276 => instruction(Source::Pages, Field::Adrp),
        277 | 278 => instruction(Source::InPage, Field::Low { shift: 0 }),
        284 => instruction(Source::InPage, Field::Low { shift: 1 }),
        285 => instruction(Source::InPage, Field::Low { shift: 2 }),
        286 => instruction(Source::InPage, Field::Low { shift: 3 }),
        299 => instruction(Source::InPage, Field::Low { shift: 4 }),
        279 => instruction(Source::Distance, Field::Branch { bits: 14, at: 5 }),
        280 => instruction(Source::Distance, Field::Branch { bits: 19, at: 5 }),
        282 | 283 => instruction(Source::Distance, Field::Branch { bits: 26, at: 0 }),
        311 => instruction(Source::SlotPages, Field::Adrp),
        312 => instruction(Source::SlotInPage, Field::Low { shift: 3 }),
        512..=573 => Kind::ThreadLocal,
        _ => return None,
    })
}

/// Whether relocations of a kind do nothing.
pub(super) fn is_nothing(machine: Machine, number: u32) -> bool {
    match machine {
        Machine::X86_64 => number == 0,
        Machine::Aarch64 => matches!(number, 0 | 256),
    }
}

/// Whether relocations of a kind are of thread-local values.
pub(super) fn is_thread_local(machine: Machine, number: u32) -> bool {
    Kind::of(machine, number) == Some(Kind::ThreadLocal)
}

/// Whether code with a relocation of this kind reads an address from a slot.
pub(super) fn reads_slot(machine: Machine, number: u32) -> bool {
    let from_slot = |from| matches!(from, Source::SlotPages | Source::SlotInPage);
    match Kind::of(machine, number) {
        Some(Kind::SlotDistance) => true,
        Some(Kind::Instruction { from, .. }) => from_slot(from),
        _ => false,
    }
}

/// The length of a thunk, in bytes.
pub(super) fn thunk_bytes(machine: Machine) -> u64 {
    match machine {
        Machine::X86_64 => 8,
        Machine::Aarch64 => 12,
    }
}

/// The code of a thunk at `place`, which jumps to the address in `slot`.
pub(super) fn thunk(machine: Machine, place: u64, slot: u64) -> Vec<u8> {
    match machine {
        Machine::X86_64 => {
            // jmp [rip + distance], from the end of the instruction; int3.
            let distance = (slot - place - 6) as u32;
            [&[0xff, 0x25], &distance.to_le_bytes()[..], &[0xcc, 0xcc]].concat()
        }
        Machine::Aarch64 => {
            let pages = (slot >> 12).wrapping_sub(place >> 12) as i64;
            // adrp x16, slot; ldr x16, [x16, slot in page]; br x16
            let adrp = set(0x9000_0010, Field::Adrp, pages << 12).expect("data is near text");
            let ldr = set(0xf940_0210, Field::Low { shift: 3 }, (slot & 0xfff) as i64);
            let ldr = ldr.expect("a slot is aligned");
            [adrp, ldr, 0xd61f_0200].iter().flat_map(|word| word.to_le_bytes()).collect()
        }
    }
}

/// What fills the gaps in text: instructions that trap.
pub(super) fn gap(machine: Machine) -> u8 {
    match machine {
        Machine::X86_64 => 0xcc,
        Machine::Aarch64 => 0,
    }
}

/// An instruction of ARM with a value in its field; `None` if the value does not fit.
pub(super) fn set(instruction: u32, field: Field, value: i64) -> Option<u32> {
    let fits = |value: i64, bits: u32| {
        let half = 1_i64 << (bits - 1);
        (-half..half).contains(&value)
    };
    let exact = |shift: u32| (value & ((1 << shift) - 1) == 0).then_some(value >> shift);
    let adr = |value: i64| {
        let value = fits(value, 21).then_some(value as u32)?;
        let cleared = instruction & !((3 << 29) | (0x7_ffff << 5));
        Some(cleared | (value & 3) << 29 | (value >> 2 & 0x7_ffff) << 5)
    };
    match field {
        Field::Branch { bits, at } => {
            let value = exact(2).filter(|value| fits(*value, bits))?;
            let mask = (1 << bits) - 1;
            Some(instruction & !(mask << at) | (value as u32 & mask) << at)
        }
        Field::Adr => adr(value),
        Field::Adrp => adr(exact(12)?),
        Field::Low { shift } => {
            let value = exact(shift).filter(|value| (0..1 << 12).contains(value))?;
            Some(instruction & !(0xfff << 10) | (value as u32) << 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_instructions() {
        // As GNU as encodes them.
        let branch = Field::Branch { bits: 26, at: 0 };
        assert_eq!(set(0x9400_0000, branch, 8), Some(0x9400_0002)); // bl .+8
        assert_eq!(set(0x9400_0000, branch, -4), Some(0x97ff_ffff)); // bl .-4
        assert_eq!(set(0x9400_0000, branch, 6), None);
        assert_eq!(set(0x9400_0000, branch, 1 << 27), None);
        let conditional = Field::Branch { bits: 19, at: 5 };
        assert_eq!(set(0x5400_0000, conditional, 8), Some(0x5400_0040)); // b.eq .+8
        assert_eq!(set(0x1000_0000, Field::Adr, 1), Some(0x3000_0000)); // adr x0, .+1
        assert_eq!(set(0x1000_0000, Field::Adr, -4), Some(0x10ff_ffe0)); // adr x0, .-4
        assert_eq!(set(0x9000_0000, Field::Adrp, 1 << 20), Some(0x9000_0800)); // adrp x0, 0x100000
        assert_eq!(set(0x9000_0000, Field::Adrp, 1), None);
        assert_eq!(set(0xf940_0000, Field::Low { shift: 3 }, 16), Some(0xf940_0800)); // ldr x0, [x0, 16]
        assert_eq!(set(0xf940_0000, Field::Low { shift: 3 }, 4), None);
        assert_eq!(set(0x9100_0000, Field::Low { shift: 0 }, 0xfff), Some(0x913f_fc00));
    }

    #[test]
    fn thread_local_values_of_x86_64_are_known_in_each_encoding() {
        // GOTPCREL, GOTPCRELX, REX_GOTPCRELX, CODE_4_GOTPCRELX: the last with a REX2 prefix.
        for number in [9, 41, 42, 43] {
            assert!(reads_slot(Machine::X86_64, number), "{number}");
        }
        // GOTTPOFF, GOTPC32_TLSDESC; CODE_4_GOTTPOFF, CODE_4_GOTPC32_TLSDESC.
        for number in [22, 34, 44, 45] {
            assert!(is_thread_local(Machine::X86_64, number), "{number}");
        }
    }

    #[test]
    fn thunks_jump_through_their_slot() {
        let thunk = thunk(Machine::X86_64, 0x10, 0x10_0008);
        assert_eq!(thunk, [0xff, 0x25, 0xf2, 0xff, 0x0f, 0, 0xcc, 0xcc]);
        let thunk = super::thunk(Machine::Aarch64, 0x10, 0x10_0008);
        let words = [0x9000_0810_u32, 0xf940_0610, 0xd61f_0200];
        assert_eq!(thunk, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    }
}

//! A jam as an ELF file, for the tools of the system that show code: text and data at the distance that
//! they have at a receiver, and symbols for the entry, for the slot of each import, and for the code that jumps
//! through one.

use jam_format::{DATA_DISTANCE, Machine, Parsed, SLOT_BYTES};
use object::elf;

/// The length of an ELF header and of a section header, in bytes.
const HEADER: usize = 64;
/// The numbers of the sections; 0 is none.
const TEXT: u16 = 1;
const DATA: u16 = 2;
const STRINGS: u16 = 4;

/// The symbol of the entry.
const ENTRY: &str = "entry";
/// The length of what calls an import on 64-bit ARM, in bytes.
const STUB_BYTES: usize = 12;

/// The number of the import that the code at `at` jumps to, if it is what the linker makes for calls
/// of one on 64-bit ARM: `adrp x16, slot; ldr x16, [x16, slot in page]; br x16`.
fn called(text: &[u8], at: usize) -> Option<usize> {
    let code: &[u8; STUB_BYTES] = text.get(at..)?.first_chunk()?;
    let word = |index: usize| {
        code[index..][..4].iter().rfold(0, |word, byte| word << 8 | u32::from(*byte))
    };
    let (adrp, ldr, br) = (word(0), word(4), word(8));
    let is_stub = adrp & 0x9f00_001f == 0x9000_0010 && ldr & 0xffc0_03ff == 0xf940_0210;
    let pages = (adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3;
    let page = (at as u32 & !0xfff).wrapping_add(pages << 12);
    let slots = page.wrapping_sub(DATA_DISTANCE) / SLOT_BYTES as u32 + (ldr >> 10 & 0xfff);
    (is_stub && br == 0xd61f_0200).then_some(slots as usize)
}

/// The bytes of the file.
pub(crate) fn elf(blob: &Parsed<'_>) -> Vec<u8> {
    let mut strings = b"\0".to_vec();
    let mut named = |name: &str| {
        let at = strings.len() as u32;
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
        at
    };
    let mut symbols = vec![0; 24];
    let mut symbol = |name: &str, section: u16, kind: elf::SymbolType, at: u32, size: usize| {
        symbols.extend(named(name).to_le_bytes());
        symbols.extend([elf::STB_GLOBAL.0 << 4 | kind.0, 0]);
        symbols.extend(section.to_le_bytes());
        symbols.extend(u64::from(at).to_le_bytes());
        symbols.extend((size as u64).to_le_bytes());
    };
    symbol(ENTRY, TEXT, elf::STT_FUNC, blob.entry(), 0);
    let imports: Vec<_> = blob.imports().map(|import| import.name).collect();
    for (name, slot) in imports.iter().zip((DATA_DISTANCE..).step_by(SLOT_BYTES)) {
        symbol(name, DATA, elf::STT_OBJECT, slot, SLOT_BYTES);
    }
    if blob.machine() == Machine::Aarch64 {
        for at in (0..blob.text().len()).step_by(4) {
            if let Some(name) = called(blob.text(), at).and_then(|number| imports.get(number)) {
                symbol(name, TEXT, elf::STT_FUNC, at as u32, STUB_BYTES);
            }
        }
    }
    let names = [".text", ".data", ".symtab", ".strtab"].map(&mut named);
    let (code, constants) = (elf::SHF_ALLOC | elf::SHF_EXECINSTR, elf::SHF_ALLOC);
    // Kind, flags, address, content, what it refers to, its first global symbol, length of an entry.
    let none = elf::SectionFlags(0);
    let sections = [
        (elf::SHT_PROGBITS, code, 0, blob.text(), 0, 0, 0),
        (elf::SHT_PROGBITS, constants, DATA_DISTANCE, blob.data(), 0, 0, 0),
        (elf::SHT_SYMTAB, none, 0, &symbols[..], u32::from(STRINGS), 1, 24),
        (elf::SHT_STRTAB, none, 0, &strings[..], 0, 0, 0),
    ];
    let mut headers = vec![0; HEADER];
    let mut contents = Vec::new();
    for (name, (kind, flags, address, content, link, info, entry)) in
        names.into_iter().zip(sections)
    {
        contents.resize(contents.len().next_multiple_of(16), 0);
        let place = HEADER + contents.len();
        contents.extend_from_slice(content);
        [name, kind.0].iter().for_each(|word| headers.extend(word.to_le_bytes()));
        let words = [flags.0, address.into(), place as u64, content.len() as u64];
        words.iter().for_each(|word| headers.extend(word.to_le_bytes()));
        [link, info].iter().for_each(|word: &u32| headers.extend(word.to_le_bytes()));
        [16, entry].iter().for_each(|word: &u64| headers.extend(word.to_le_bytes()));
    }
    contents.resize(contents.len().next_multiple_of(16), 0);
    let machine = match blob.machine() {
        Machine::X86_64 => elf::EM_X86_64,
        Machine::Aarch64 => elf::EM_AARCH64,
    };
    let mut file = elf::ELFMAG.to_vec();
    file.extend([elf::ELFCLASS64.0, elf::ELFDATA2LSB.0, elf::EV_CURRENT.0, 0]);
    file.resize(16, 0);
    [elf::ET_EXEC.0, machine.0].iter().for_each(|half| file.extend(half.to_le_bytes()));
    file.extend(u32::from(elf::EV_CURRENT.0).to_le_bytes());
    let headers_at = (HEADER + contents.len()) as u64;
    [blob.entry().into(), 0, headers_at]
        .iter()
        .for_each(|word: &u64| file.extend(word.to_le_bytes()));
    file.extend([0; 4]);
    let lengths = [HEADER as u16, 0, 0, HEADER as u16, 5, STRINGS];
    lengths.iter().for_each(|half| file.extend(half.to_le_bytes()));
    [file, contents, headers].concat()
}

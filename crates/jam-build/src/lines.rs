//! From an offset in an object to a line of the source, by the debug information in it.

use std::rc::Rc;

use addr2line::Context;
use gimli::{EndianRcSlice, RunTimeEndian, SectionId};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex};

type Bytes = EndianRcSlice<RunTimeEndian>;

/// The debug information of one object.
pub(crate) struct Lines {
    context: Context<Bytes>,
}

impl Lines {
    /// Reads it; `None` if the object has none that can be read.
    pub(crate) fn of(object: &object::File<'_>) -> Option<Self> {
        let load = |id: SectionId| -> Result<Bytes, gimli::Error> {
            let bytes =
                object.section_by_name(id.name()).map(|section| relocated(object, &section));
            Ok(EndianRcSlice::new(Rc::from(bytes.unwrap_or_default()), RunTimeEndian::Little))
        };
        let context = Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()?;
        Some(Self { context })
    }

    /// Line and column of the code at `offset` of a section: of the innermost call there that `file`
    /// has in its text, since others are inlined into it.
    pub(crate) fn find(
        &self,
        section: SectionIndex,
        offset: u64,
        file: &str,
    ) -> Option<(u32, u32)> {
        let mut frames =
            self.context.find_frames(address(section) + offset).skip_all_loads().ok()?;
        while let Some(frame) = frames.next().ok()? {
            let Some(location) = frame.location else { continue };
            if location.file.is_some_and(|found| found.ends_with(file)) {
                return Some((location.line?, location.column.unwrap_or(0)));
            }
        }
        None
    }
}

/// The address that stands for the start of a section, all of which begin at 0 in an object.
fn address(section: SectionIndex) -> u64 {
    (section.0 as u64) << 32
}

/// The bytes of a section of debug information, with its relocations applied.
fn relocated(object: &object::File<'_>, section: &object::Section<'_, '_>) -> Vec<u8> {
    let mut bytes = section.uncompressed_data().unwrap_or_default().into_owned();
    for (place, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
        let Ok(symbol) = object.symbol_by_index(symbol) else { continue };
        let Some(index) = symbol.section_index() else { continue };
        let is_debug = object
            .section_by_index(index)
            .is_ok_and(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
        let start = if is_debug { 0 } else { address(index) };
        let value = (start + symbol.address()).wrapping_add_signed(relocation.addend());
        let (place, size) = (place as usize, usize::from(relocation.size()) / 8);
        let value = value.to_le_bytes();
        if let Some(word) = bytes.get_mut(place..place + size) {
            word.copy_from_slice(&value[..size]);
        }
    }
    bytes
}

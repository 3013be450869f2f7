//! Where each reached section is in text or data, and the slots and thunks beside them.

use std::collections::{BTreeSet, HashMap};

use jam_format::{DATA_DISTANCE, MAX_ALIGN, MAX_BLOB_BYTES, SLOT_BYTES};
use object::ObjectSection;

use super::reach::{Reached, Reference};
use super::{Request, machines};
use crate::error::Error;
use crate::objects::{Objects, Section, Target};

/// The addresses of everything in a jam, with text at 0 and data at [`DATA_DISTANCE`].
#[derive(Debug)]
pub(super) struct Layout {
    sections: HashMap<Section, u64>,
    /// The imports, by name; the slot of each is at its position.
    pub(super) imports: Vec<String>,
    /// The targets in this jam whose address is in a slot, after those of the imports.
    pub(super) local_slots: Vec<(Section, u64)>,
    /// The imports with a thunk.
    pub(super) thunks: Vec<String>,
    thunks_start: u64,
    thunk_bytes: u64,
    pub(super) text_len: u64,
    pub(super) data_len: u64,
    /// The largest alignment of a section, in bytes.
    pub(super) alignment: u64,
    pub(super) entry: u32,
}

impl Layout {
    pub(super) fn new(
        objects: &Objects<'_>,
        request: &Request<'_>,
        reached: &Reached,
    ) -> Result<Self, Error> {
        let (mut imports, mut thunks, mut local_slots) = (BTreeSet::new(), BTreeSet::new(), vec![]);
        for reference in &reached.references {
            let is_slot = machines::reads_slot(request.machine, reference.kind);
            match &reference.target {
                Target::Outside(name) => {
                    imports.insert(name.clone());
                    if !is_slot {
                        thunks.insert(name.clone());
                    }
                }
                Target::At(section, offset) if is_slot => {
                    let slot = (*section, *offset);
                    if !local_slots.contains(&slot) {
                        local_slots.push(slot);
                    }
                }
                Target::At(..) => {}
            }
        }
        let mut layout = Self {
            sections: HashMap::new(),
            thunk_bytes: machines::thunk_bytes(request.machine),
            imports: imports.into_iter().collect(),
            thunks: thunks.into_iter().collect(),
            local_slots,
            thunks_start: 0,
            text_len: 0,
            data_len: 0,
            alignment: 1,
            entry: 0,
        };
        layout.data_len = (layout.slots() * SLOT_BYTES) as u64;
        layout.place(objects, reached)?;
        layout.thunks_start = layout.text_len.next_multiple_of(8);
        if !layout.thunks.is_empty() {
            layout.text_len = layout.thunks_start + layout.thunks.len() as u64 * layout.thunk_bytes;
        }
        if layout.text_len + layout.data_len > MAX_BLOB_BYTES as u64 {
            return Err(layout.too_long(objects, request, reached));
        }
        Ok(layout)
    }

    fn place(&mut self, objects: &Objects<'_>, reached: &Reached) -> Result<(), Error> {
        for part in &reached.parts {
            let section = objects.section(part.section)?;
            let align = section.align().max(1);
            if align > MAX_ALIGN as u64 {
                let name = objects.name_at(part.section, 0);
                let message =
                    format!("`{name}` is aligned to {align}, expected at most {MAX_ALIGN}");
                return Err(objects.records(message));
            }
            self.alignment = self.alignment.max(align);
            let len = if part.is_text { &mut self.text_len } else { &mut self.data_len };
            let start = len.next_multiple_of(align);
            *len = start + section.size();
            let base = if part.is_text { 0 } else { u64::from(DATA_DISTANCE) };
            self.sections.insert(part.section, base + start);
        }
        // A jam that is too long is an error of the blob, which says both lengths.
        let first = reached.parts[0].section;
        self.entry = u32::try_from(self.sections[&first] + reached.entry).unwrap_or(u32::MAX);
        Ok(())
    }

    /// The error of a jam that is too long, which names its largest part.
    fn too_long(&self, objects: &Objects<'_>, request: &Request<'_>, reached: &Reached) -> Error {
        let size = |section| objects.section(section).map_or(0, |section| section.size());
        let largest = reached.parts.iter().max_by_key(|part| size(part.section));
        let largest = largest.expect("the entry is reached").section;
        let symbol = objects.name_at(largest, 0);
        Error::TooLong {
            bytes: self.text_len + self.data_len,
            symbol_bytes: size(largest),
            site: request.site(objects, largest, 0, &symbol),
            symbol,
        }
    }

    fn slots(&self) -> usize {
        self.imports.len() + self.local_slots.len()
    }

    /// The address of a reached section.
    pub(super) fn section(&self, section: Section) -> u64 {
        self.sections[&section]
    }

    /// The address of what a reference refers to: of an import, that of its thunk.
    pub(super) fn target(&self, reference: &Reference) -> u64 {
        match &reference.target {
            Target::At(section, offset) => self.section(*section) + offset,
            Target::Outside(name) => {
                let thunk = self.thunks.iter().position(|thunk| thunk == name);
                self.thunk(thunk.expect("each import that is not read from a slot has a thunk"))
            }
        }
    }

    /// The address of a thunk.
    pub(super) fn thunk(&self, index: usize) -> u64 {
        self.thunks_start + index as u64 * self.thunk_bytes
    }

    /// The address of the slot of what a reference refers to.
    pub(super) fn slot(&self, reference: &Reference) -> u64 {
        let index = match &reference.target {
            Target::At(section, offset) => {
                let slot = self.local_slots.iter().position(|slot| *slot == (*section, *offset));
                self.imports.len() + slot.expect("each target that is read from a slot has one")
            }
            Target::Outside(name) => self.import(name),
        };
        slot_address(index)
    }

    /// The address of an import's slot.
    pub(super) fn import_slot(&self, name: &str) -> u64 {
        slot_address(self.import(name))
    }

    fn import(&self, name: &str) -> usize {
        self.imports.binary_search_by(|import| (**import).cmp(name)).expect("each import is listed")
    }
}

fn slot_address(index: usize) -> u64 {
    u64::from(DATA_DISTANCE) + (index * SLOT_BYTES) as u64
}

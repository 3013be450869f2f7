//! The linker: from the objects of one source to a blob.
//!
//! 1. `reach.rs`: the sections that the entry reaches. What is not reached is not in the blob.
//! 2. `layout.rs`: where each of them is; slots for addresses in data, thunks for calls in text.
//! 3. `relocate.rs`, `machines.rs`: each relocation, applied for text at 0 and data at
//!    [`DATA_DISTANCE`](jam_format::DATA_DISTANCE), or left to the receiver.
//!
//! A call to an import goes through its slot in data, which the receiver fills: directly where the
//! compiler reads the slot, else by a thunk in text.

mod layout;
mod machines;
mod reach;
mod relocate;

use jam_format::{Blob, Features, Import, Machine};

use crate::error::{Error, Site};
use crate::objects::{IMPLICIT, Objects, Section};
use crate::records::{Entry, Imported};
use layout::Layout;
use reach::Reached;

/// The symbol of a jam's entry.
pub(crate) const ENTRY: &str = "__jam_entry";

/// What the link of a jam needs besides its objects.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) machine: Machine,
    pub(crate) features: Features,
    pub(crate) entry: &'a Entry,
    pub(crate) imports: &'a [Imported],
    /// The line on which the source declares a static, if it does.
    pub(crate) line_of: &'a dyn Fn(&str) -> Option<(u32, u32)>,
}

impl Request<'_> {
    /// Whether the receiver has the symbol, even if an object defines it too.
    fn is_outside(&self, name: &str) -> bool {
        IMPLICIT.contains(&name) || self.imports.iter().any(|import| import.name == name)
    }

    /// Where a static is declared, or else the line of the code at `offset` of a section.
    fn site(&self, objects: &Objects<'_>, section: Section, offset: u64, symbol: &str) -> Site {
        let name = symbol.rsplit("::").next().unwrap_or_default();
        match (self.line_of)(name) {
            Some((line, column)) => Site { file: objects.file.clone(), line, column },
            None => objects.site(section, offset),
        }
    }

    /// The signature of an import; 0 for those that every receiver has.
    fn signature(&self, name: &str) -> u64 {
        let declared = self.imports.iter().find(|import| import.name == name);
        declared.map_or(0, |import| import.signature)
    }
}

/// Links the jam of `objects` into a blob.
pub(crate) fn link(objects: &Objects<'_>, request: &Request<'_>) -> Result<Vec<u8>, Error> {
    let reached = Reached::from_entry(objects, request)?;
    let layout = Layout::new(objects, request, &reached)?;
    let image = relocate::relocate(objects, request, &reached, &layout)?;
    let imports: Vec<_> = layout
        .imports
        .iter()
        .map(|name| Import { name, signature: request.signature(name) })
        .collect();
    let blob = Blob {
        machine: request.machine,
        features: request.features,
        needs_page: layout.alignment > jam_format::ARENA_UNIT as u64 || image.has_pages,
        name: request.name,
        property: Some(request.entry.property.as_str()).filter(|name| !name.is_empty()),
        entry: layout.entry,
        entry_signature: request.entry.signature,
        args_bytes: request.entry.args_bytes,
        element_bytes: request.entry.element_bytes,
        reply_bytes: request.entry.reply_bytes,
        imports: &imports,
        relocations: &image.relocations,
        text: &image.text,
        data: &image.data,
    };
    let failed = |source| Error::Blob {
        file: objects.file.clone(),
        text: image.text.len(),
        data: image.data.len(),
        source,
    };
    blob.encode().map_err(failed)
}

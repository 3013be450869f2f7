//! Text and data with every relocation applied, or left to the receiver.

use jam_format::{DATA_DISTANCE, Relocation};
use object::ObjectSection;

use super::Request;
use super::layout::Layout;
use super::machines::{self, Field, Kind, Source};
use super::reach::{Reached, Reference};
use crate::error::Error;
use crate::objects::{Objects, Target};

/// The content of a blob.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) text: Vec<u8>,
    pub(super) data: Vec<u8>,
    /// What the receiver applies, sorted by place.
    pub(super) relocations: Vec<Relocation>,
    /// Whether code counts in pages, so that they must be those of memory.
    pub(super) has_pages: bool,
}

pub(super) fn relocate(
    objects: &Objects<'_>,
    request: &Request<'_>,
    reached: &Reached,
    layout: &Layout,
) -> Result<Image, Error> {
    let mut image = Image {
        text: vec![machines::gap(request.machine); layout.text_len as usize],
        data: vec![0; layout.data_len as usize],
        relocations: Vec::new(),
        has_pages: false,
    };
    for part in &reached.parts {
        let section = objects.section(part.section)?;
        let content = section.data().map_err(|e| objects.failed(e))?;
        image.bytes(layout.section(part.section), content.len()).copy_from_slice(content);
    }
    for (index, name) in layout.thunks.iter().enumerate() {
        let place = layout.thunk(index);
        let code = machines::thunk(request.machine, place, layout.import_slot(name));
        image.bytes(place, code.len()).copy_from_slice(&code);
        image.has_pages |= request.machine == jam_format::Machine::Aarch64;
    }
    let first_local = layout.imports.len() * jam_format::SLOT_BYTES;
    for (index, (section, offset)) in layout.local_slots.iter().enumerate() {
        let place = (first_local + index * jam_format::SLOT_BYTES) as u32;
        let value = (layout.section(*section) + offset) as u32;
        image.relocations.push(Relocation { place, value });
    }
    for reference in &reached.references {
        image
            .apply(layout, request, reference)
            .map_err(|why| error(objects, request, reference, why))?;
    }
    image.relocations.sort_by_key(|relocation| relocation.place);
    Ok(image)
}

/// Why a relocation cannot be applied.
enum Why {
    Unknown,
    OutOfRange,
    Unaligned,
    ThreadLocal,
    Absolute,
}

impl Image {
    /// The `len` bytes at an address.
    fn bytes(&mut self, address: u64, len: usize) -> &mut [u8] {
        let distance = u64::from(DATA_DISTANCE);
        let (part, start) = if address >= distance && self.text.len() as u64 <= distance {
            (&mut self.data, address - distance)
        } else {
            (&mut self.text, address)
        };
        &mut part[start as usize..start as usize + len]
    }

    fn apply(
        &mut self,
        layout: &Layout,
        request: &Request<'_>,
        reference: &Reference,
    ) -> Result<(), Why> {
        let place = layout.section(reference.section) + reference.offset;
        let plus = |address: u64| address.wrapping_add_signed(reference.addend);
        let distance = |address: u64| plus(address).wrapping_sub(place) as i64;
        match Kind::of(request.machine, reference.kind).ok_or(Why::Unknown)? {
            Kind::Address { .. } if place < DATA_DISTANCE.into() => Err(Why::Absolute),
            Kind::Address { bytes } => {
                let at = place - u64::from(DATA_DISTANCE);
                if !at.is_multiple_of(8) {
                    return Err(Why::Unaligned);
                }
                let value = u32::try_from(plus(layout.target(reference)));
                self.bytes(place, bytes).fill(0);
                let value = value.map_err(|_| Why::OutOfRange)?;
                self.relocations.push(Relocation { place: at as u32, value });
                Ok(())
            }
            Kind::Distance { bytes } => self.put(place, bytes, distance(layout.target(reference))),
            Kind::SlotDistance => self.put(place, 4, distance(layout.slot(reference))),
            Kind::Instruction { from, field } => {
                let page = |address: u64| (address & !0xfff) as i64;
                let value = match from {
                    Source::Distance => distance(layout.target(reference)),
                    Source::Pages => page(plus(layout.target(reference))) - page(place),
                    Source::SlotPages => page(plus(layout.slot(reference))) - page(place),
                    Source::InPage => (plus(layout.target(reference)) & 0xfff) as i64,
                    Source::SlotInPage => (plus(layout.slot(reference)) & 0xfff) as i64,
                };
                self.has_pages |= from != Source::Distance;
                self.instruct(place, field, value)
            }
            Kind::ThreadLocal => Err(Why::ThreadLocal),
            Kind::Absolute => Err(Why::Absolute),
        }
    }

    /// Writes a signed value.
    fn put(&mut self, place: u64, bytes: usize, value: i64) -> Result<(), Why> {
        let bits = bytes as u32 * 8;
        if bits < 64 && !(-(1_i64 << (bits - 1))..1 << (bits - 1)).contains(&value) {
            return Err(Why::OutOfRange);
        }
        self.bytes(place, bytes).copy_from_slice(&value.to_le_bytes()[..bytes]);
        Ok(())
    }

    /// Sets a field of the instruction at `place`.
    fn instruct(&mut self, place: u64, field: Field, value: i64) -> Result<(), Why> {
        let word = self.bytes(place, 4);
        let old = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let new = machines::set(old, field, value).ok_or(Why::OutOfRange)?;
        word.copy_from_slice(&new.to_le_bytes());
        Ok(())
    }
}

fn error(objects: &Objects<'_>, request: &Request<'_>, reference: &Reference, why: Why) -> Error {
    let site = objects.site(reference.section, reference.offset);
    let symbol = match &reference.target {
        Target::At(section, offset) => objects.name_at(*section, *offset),
        Target::Outside(name) => objects.readable(name),
    };
    let relocation = format!("{} of {}", reference.kind, request.machine);
    let why = match why {
        Why::ThreadLocal => return Error::ThreadLocal { symbol, site },
        Why::Absolute => return Error::Absolute { symbol, relocation, site },
        Why::Unknown => "expected one of position-independent code",
        Why::OutOfRange => "it does not reach: expected a smaller jam",
        Why::Unaligned => "expected an address at a multiple of 8",
    };
    Error::Relocation { symbol, relocation, why, site }
}

//! [`Code`]: the jams that are linked in the process of an executor.
//!
//! This process links: it writes text and data where the other one has them read-only. Places are given
//! out once in the life of a process, so that no processor has fetched what is overwritten; when there
//! are none left, the executor starts another process.

use std::collections::HashMap;

use jam::{Digest, Refusal, SignatureHash};
use jam_format::{Parsed, SLOT_BYTES};
use primitive::SharedBytes;

use crate::layout::{DATA, HALF, Sizes, TEXT};
use crate::stub::functions;

/// The signature of functions that every receiver has.
const C_SIGNATURE: u64 = 0;
/// The unit of places: a cache line.
const LINE: usize = 64;

/// What is linked, and where the next jam goes.
#[derive(Debug, Default)]
pub(crate) struct Code {
    linked: HashMap<Digest, Linked>,
    end: usize,
}

/// A jam in the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linked {
    /// Addresses in the process.
    pub(crate) entry: u64,
    pub(crate) text: u64,
    pub(crate) text_end: u64,
    /// The hash of its types.
    pub(crate) signature: u64,
}

impl Code {
    /// The jam with this digest, if it is linked.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Linked> {
        self.linked.get(digest).copied()
    }

    /// Links a blob; `Ok(None)` if there is no place left.
    pub(crate) fn link(
        &mut self,
        blob: &[u8],
        digest: Digest,
        memory: &SharedBytes,
        sizes: &Sizes,
    ) -> Result<Option<Linked>, Refusal> {
        let parsed = Parsed::parse(blob)
            .map_err(|error| Refusal::Malformed { reason: error.to_string() })?;
        jam::check_machine(&parsed)?;
        let addresses = resolve(&parsed)?;
        let (text, data) = (parsed.text(), parsed.data());
        let bytes = text.len().max(data.len());
        let start = self.end.next_multiple_of(parsed.alignment().max(LINE));
        let end = start.saturating_add(bytes);
        if bytes > HALF {
            return Err(Refusal::NoRoom { bytes: bytes as u64 });
        }
        if end > HALF {
            return Ok(None);
        }
        let base = TEXT + start as u64;
        let mut data = data.to_vec();
        let mut set = |at: usize, address: u64| {
            data[at..at + SLOT_BYTES].copy_from_slice(&address.to_le_bytes());
        };
        for (index, address) in addresses.into_iter().enumerate() {
            set(index * SLOT_BYTES, address);
        }
        for relocation in parsed.relocations() {
            set(relocation.place as usize, base + u64::from(relocation.value));
        }
        memory.write_from(sizes.offset_of(TEXT) + start, text);
        memory.write_from(sizes.offset_of(DATA) + start, &data);
        let linked = Linked {
            entry: base + u64::from(parsed.entry()),
            text: base,
            text_end: base + text.len() as u64,
            signature: parsed.entry_signature(),
        };
        self.end = end.next_multiple_of(LINE);
        self.linked.insert(digest, linked);
        Ok(Some(linked))
    }
}

/// The addresses of a jam's imports.
fn resolve(blob: &Parsed<'_>) -> Result<Vec<u64>, Refusal> {
    let functions = functions();
    let find = |import: jam_format::Import<'_>| {
        let found = functions.iter().find(|(name, _)| *name == import.name);
        match found {
            Some((_, address)) if import.signature == C_SIGNATURE => Ok(*address),
            Some(_) => Err(Refusal::WrongSignature {
                symbol: import.name.to_owned(),
                wanted: SignatureHash(import.signature),
                found: SignatureHash(C_SIGNATURE),
                wanted_types: String::new(),
                found_types: String::new(),
            }),
            None => Err(Refusal::MissingSymbol {
                symbol: import.name.to_owned(),
                signature: SignatureHash(import.signature),
                types: String::new(),
            }),
        }
    };
    blob.imports().map(find).collect()
}

#[cfg(test)]
mod tests {
    use jam_format::{Blob, Import, Machine, Relocation};

    use super::*;
    use crate::layout::UNIT;

    const SIZES: Sizes = Sizes { payload: UNIT, stack: UNIT, scratch: 0 };

    fn blob(imports: &[Import<'_>], text: &[u8]) -> Vec<u8> {
        let machine = Machine::CURRENT.expect("a machine of jams");
        let at = imports.len() * 8;
        let relocation = Relocation { place: at as u32, value: 4 };
        let (relocations, data) = ([relocation], vec![0; at + 8]);
        let blob = Blob {
            name: "one",
            imports,
            relocations: &relocations,
            text,
            data: &data,
            ..Blob::new(machine)
        };
        blob.encode().unwrap()
    }

    #[test]
    fn a_jam_is_linked_once_to_the_functions_of_the_program() {
        let memory = SharedBytes::heap(SIZES.total());
        let mut code = Code::default();
        let blob = blob(&[Import { name: "memcpy", signature: 0 }], &[1; 100]);
        let digest = Digest::of(&blob);
        assert!(code.find(&digest).is_none());
        let linked = code.link(&blob, digest, &memory, &SIZES).unwrap().unwrap();
        assert_eq!((linked.text, linked.text_end), (TEXT, TEXT + 100));
        let memcpy = functions()[0].1;
        let word = |at| memory.load(HALF + at, primitive::sync::Ordering::Relaxed);
        assert_eq!((word(0), word(8)), (memcpy, TEXT + 4));
        assert_eq!(code.find(&digest).unwrap().entry, TEXT);
        let second = code.link(&blob, digest, &memory, &SIZES).unwrap().unwrap();
        assert_eq!(second.text, TEXT + 128);
    }

    #[test]
    fn what_an_executor_does_not_have_is_refused() {
        let memory = SharedBytes::heap(SIZES.total());
        let mut code = Code::default();
        let mut link = |bytes: &[u8]| code.link(bytes, Digest::of(bytes), &memory, &SIZES);
        let missing = blob(&[Import { name: "table_slot", signature: 7 }], &[0; 8]);
        assert!(matches!(link(&missing), Err(Refusal::MissingSymbol { .. })));
        let wrong = blob(&[Import { name: "memcpy", signature: 7 }], &[0; 8]);
        assert!(matches!(link(&wrong), Err(Refusal::WrongSignature { .. })));
        assert!(matches!(link(&missing[..60]), Err(Refusal::Malformed { .. })));
        let half = blob(&[], &vec![0; HALF * 3 / 4]);
        assert!(link(&half).unwrap().is_some());
        assert!(link(&half).unwrap().is_none(), "no place is left");
    }
}

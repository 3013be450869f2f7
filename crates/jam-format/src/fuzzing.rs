//! What must hold for whatever bytes a peer sends as a blob: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/jam_blob`.

use crate::{Blob, DATA_DISTANCE, Parsed, SLOT_BYTES};

/// Bytes are a blob, all of whose parts are in range and which has one encoding, or an error that
/// can be printed.
///
/// # Panics
/// When that does not hold.
pub fn jam_blob(data: &[u8]) {
    let parsed = match Parsed::parse(data) {
        Ok(parsed) => parsed,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!((parsed.entry() as usize) < parsed.text().len(), "the entry is outside text");
    let imports: Vec<_> = parsed.imports().collect();
    assert!(imports.len() * SLOT_BYTES <= parsed.data().len(), "an import has no slot");
    let relocations: Vec<_> = parsed.relocations().collect();
    for relocation in &relocations {
        let place = relocation.place as usize;
        assert!(place >= imports.len() * SLOT_BYTES, "a relocation in an import's slot");
        assert!(place + SLOT_BYTES <= parsed.data().len(), "a relocation outside data");
        let value = relocation.value;
        let in_text = value as usize <= parsed.text().len();
        let in_data =
            value >= DATA_DISTANCE && (value - DATA_DISTANCE) as usize <= parsed.data().len();
        assert!(in_text || in_data, "a relocation points outside the jam");
    }
    let blob = Blob {
        machine: parsed.machine(),
        features: parsed.features(),
        needs_page: parsed.alignment() == crate::MAX_ALIGN,
        name: parsed.name(),
        property: parsed.property(),
        entry: parsed.entry(),
        entry_signature: parsed.entry_signature(),
        args_bytes: parsed.args_bytes(),
        element_bytes: parsed.element_bytes(),
        reply_bytes: parsed.reply_bytes(),
        imports: &imports,
        relocations: &relocations,
        text: parsed.text(),
        data: parsed.data(),
    };
    assert_eq!(blob.encode().as_deref(), Ok(data), "a blob has two encodings");
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;

    use super::*;
    use crate::{Features, Import, Machine, Relocation};

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of("jam_blob").run(jam_blob);
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-jam-format --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, blob: &Blob<'_>| {
            Corpus::of("jam_blob").write(name, blob.encode().expect("a blob"));
        };
        let ret = Blob { name: "answer", text: &[0xc3], ..Blob::new(Machine::X86_64) };
        put("smallest", &ret);
        let bytes = ret.encode().expect("a blob");
        Corpus::of("jam_blob").write("truncated", &bytes[..bytes.len() - 1]);
        Corpus::of("jam_blob").write("header", &bytes[..crate::HEADER_BYTES]);
        let imports =
            [Import { name: "memcpy", signature: 0 }, Import { name: "table_slot", signature: 7 }];
        let relocations = [
            Relocation { place: 16, value: 4 },
            Relocation { place: 32, value: DATA_DISTANCE + 40 },
        ];
        let all = Blob {
            features: Features::from_bits(3),
            needs_page: true,
            name: "indirect_put",
            property: Some("bench.Table@1"),
            entry: 4,
            entry_signature: 0x0123_4567_89ab_cdef,
            args_bytes: 16,
            element_bytes: 1,
            reply_bytes: 8,
            imports: &imports,
            relocations: &relocations,
            text: &[0xd6; 24],
            data: &[0; 48],
            ..Blob::new(Machine::Aarch64)
        };
        put("everything", &all);
        put("x86-64", &Blob { machine: Machine::X86_64, entry: 3, ..all });
    }
}

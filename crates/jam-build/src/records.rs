//! The records that declarations leave in an object: in Rust by `import!` and the generated entry, in
//! C by the macros of `jam.h`.

use jam_abi::signature;

use crate::c_types::Types;
use crate::error::Error;
use crate::objects::{IMPLICIT, Objects};
use crate::source::Shape;

/// A declared import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Imported {
    pub(crate) name: String,
    pub(crate) signature: u64,
    /// Its parameters and result, as text.
    pub(crate) types: String,
}

/// What a jam takes and returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) signature: u64,
    pub(crate) args_bytes: u32,
    pub(crate) element_bytes: u32,
    pub(crate) reply_bytes: u32,
    /// The name of its property's type; empty for none.
    pub(crate) property: String,
}

/// The records of a jam in Rust, whose file itself declares `declared` by `import!`.
///
/// The linker finds imports by name, and a Local Function has the slots of the file's own `import!` only.
/// So a second record of a name is an error: its calls would go to a function of other types. As is a
/// record of another `import!`, in a module or in a function: nothing would fill its slot.
pub(crate) fn of_rust(
    objects: &Objects<'_>,
    declared: &[String],
) -> Result<(Entry, Vec<Imported>), Error> {
    let malformed = || objects.records("a record of the entry or of an import is malformed");
    let bytes = objects.sections_named(jam_abi::ENTRY_SECTION)?;
    let entry = entry(&bytes).ok_or_else(malformed)?;
    let bytes = objects.sections_named(jam_abi::IMPORT_SECTION)?;
    let imports = imports(&bytes).ok_or_else(malformed)?;
    for (at, Imported { name, .. }) in imports.iter().enumerate() {
        let is_twice = imports[..at].iter().any(|other| other.name == *name);
        if is_twice || !declared.contains(name) {
            let how = if is_twice { "twice" } else { "in a module or a function" };
            return Err(objects.records(format!(
                "import `{name}` declared {how}: expected one `import!` with all imports, outside of \
                 modules and functions"
            )));
        }
    }
    check_names(objects, &imports)?;
    Ok((entry, imports))
}

/// Compilers make calls of these names by themselves, which would go to what the import declares.
fn check_names(objects: &Objects<'_>, imports: &[Imported]) -> Result<(), Error> {
    let Some(Imported { name, .. }) = imports.iter().find(|i| IMPLICIT.contains(&&i.name[..]))
    else {
        return Ok(());
    };
    Err(objects.records(format!(
        "import `{name}`: expected another name, since every receiver has a function of this one, \
         which compilers call"
    )))
}

/// The records of functions in a section.
pub(crate) fn imports(mut bytes: &[u8]) -> Option<Vec<Imported>> {
    let mut imports = Vec::new();
    while !bytes.is_empty() {
        imports.push(import(&mut bytes)?);
    }
    Some(imports)
}

fn entry(mut bytes: &[u8]) -> Option<Entry> {
    let bytes = &mut bytes;
    Some(Entry {
        signature: u64::from_le_bytes(take(bytes)?),
        args_bytes: u32::from_le_bytes(take(bytes)?),
        element_bytes: u32::from_le_bytes(take(bytes)?),
        reply_bytes: u32::from_le_bytes(take(bytes)?),
        property: str::from_utf8(bytes).ok()?.to_owned(),
    })
}

fn import(bytes: &mut &[u8]) -> Option<Imported> {
    let signature = u64::from_le_bytes(take(bytes)?);
    let lens = [u16::from_le_bytes(take(bytes)?), u16::from_le_bytes(take(bytes)?)];
    let mut text = |len: u16| str::from_utf8(bytes.split_off(..usize::from(len))?).ok();
    let [name, types] = [text(lens[0])?, text(lens[1])?];
    // As rustc shows it, which may break long lines.
    let types = types.split_whitespace().collect::<Vec<_>>().join(" ");
    if [name, &types].iter().any(|text| text.contains(jam_format::is_layout)) {
        return None;
    }
    Some(Imported { name: name.to_owned(), signature, types })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    bytes.split_off(..N)?.try_into().ok()
}

/// The functions that a source of a ried in C exports.
pub(crate) fn of_c_ried(objects: &Objects<'_>) -> Result<Vec<Imported>, Error> {
    let text = c_text(objects)?;
    let (records, types) = c_records(&text);
    let mut exports = Vec::new();
    for record in &records {
        match record[..] {
            ["export", name, result, parameters] => {
                exports.push(c_function(objects, &types, [name, result, parameters])?);
            }
            ["import", name, ..] => {
                return Err(objects.records(format!(
                    "import `{name}` of a ried in C: expected none; write the ried in Rust"
                )));
            }
            _ => {}
        }
    }
    Ok(exports)
}

fn c_text(objects: &Objects<'_>) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&objects.sections_named(".jam.c")?).into_owned())
}

/// The records of a source in C, and the types of properties that it declares.
fn c_records(text: &str) -> (Vec<Vec<&str>>, Types) {
    let records: Vec<Vec<&str>> = text
        .split(['\n', '\0'])
        .filter(|line| !line.is_empty())
        .map(|line| line.split('\t').collect())
        .collect();
    let mut types = Types::default();
    for record in &records {
        if let ["property", name, property] = record[..] {
            types.add_property(name, property.trim_matches('"'));
        }
    }
    (records, types)
}

/// A function of its name, its result and its parameters.
fn c_function(
    objects: &Objects<'_>,
    types: &Types,
    [name, result, parameters]: [&str; 3],
) -> Result<Imported, Error> {
    let hash = |found: &str| types.hash(found).ok_or_else(|| unknown_type(objects, name, found));
    let parameters = parameters.trim_start_matches('(').trim_end_matches(')').trim();
    let parameters = parameters.split(',').filter(|p| !matches!(p.trim(), "" | "void"));
    let parameters: Vec<_> = parameters.collect();
    let text = |c: &str| types.text(c).unwrap_or_else(|| c.trim().to_owned());
    let texts = parameters.iter().map(|c| text(c)).collect::<Vec<_>>().join(", ");
    let of_result = match result.trim() {
        "void" => String::new(),
        result => format!(" -> {}", text(result)),
    };
    let hashes = parameters.into_iter().map(hash).collect::<Result<Vec<_>, _>>()?;
    let signature = signature::of_function(&hashes, hash(result)?);
    Ok(Imported { name: name.to_owned(), signature, types: format!("({texts}){of_result}") })
}

fn unknown_type(objects: &Objects<'_>, of: &str, found: &str) -> Error {
    objects.records(format!(
        "type `{found}` of {of}: expected a type of jam.h, a number, or a pointer to a number or \
         a property"
    ))
}

/// The records of a jam in C: lines of text, each with its fields between tabs.
pub(crate) fn of_c(objects: &Objects<'_>) -> Result<(Entry, Vec<Imported>, Shape), Error> {
    let text = c_text(objects)?;
    let (records, types) = c_records(&text);
    let unknown = |of: &str, found: &str| unknown_type(objects, of, found);
    let mut imports = Vec::new();
    let mut entry = None;
    for record in &records {
        match record[..] {
            ["import", name, result, parameters] => {
                imports.push(c_function(objects, &types, [name, result, parameters])?);
            }
            ["entry", property, args, element] => {
                let sizes = objects.sections_named(".jam.c.sizes")?;
                let sizes = sizes.as_chunks::<4>().0;
                let [args_bytes, element_bytes] = sizes else {
                    return Err(objects.records("two JAM_SIGNATURE, expected one"));
                };
                let part = |found: &str, bytes: &[u8; 4]| {
                    match u32::from_le_bytes(*bytes) {
                    _ if found == "void" => Ok((signature::UNIT, 0, None)),
                    // Not every byte is one, and the sender's are not checked. Rust has no such arguments.
                    _ if Types::is_bool(found) => Err(objects.records(format!(
                        "type `{found}` in JAM_SIGNATURE: expected uint8_t, since a sender may send any byte"
                    ))),
                    bytes => {
                        Ok((types.value(found, bytes), bytes, Some(Types::rust(found, bytes))))
                    }
                }
                };
                let (args, args_bytes, args_type) = part(args, args_bytes)?;
                let (element, element_bytes, element_type) = part(element, element_bytes)?;
                let hash = match property {
                    "void" => signature::UNIT,
                    _ => types.hash(property).ok_or_else(|| unknown("the entry", property))?,
                };
                let shape = Shape {
                    property: types.reference(property),
                    args: args_type,
                    element: element_type,
                    result: Some("i64".to_owned()),
                    ..Shape::default()
                };
                let property = types.property(property).unwrap_or_default().to_owned();
                let of_entry = Entry {
                    signature: signature::of_entry(hash, args, element, signature::of_name("i64")),
                    args_bytes,
                    element_bytes,
                    reply_bytes: 8,
                    property,
                };
                entry = Some((of_entry, shape));
            }
            _ => {}
        }
    }
    check_names(objects, &imports)?;
    let (entry, shape) = entry.ok_or_else(|| {
        objects
            .records("no JAM_SIGNATURE(PROPERTY, ARGUMENTS, ELEMENT): expected one; void for none")
    })?;
    Ok((entry, imports, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_are_written() {
        const NAME: &str = "store";
        const TYPES: &str = "(u64,\n    &[u8])";
        let one: [u8; jam_abi::record_bytes(NAME, TYPES)] = jam_abi::record(7, NAME, TYPES);
        let two = [one, one].concat();
        let mut rest = &two[..];
        let expected =
            Imported { name: NAME.to_owned(), signature: 7, types: "(u64, &[u8])".to_owned() };
        assert_eq!(import(&mut rest).as_ref(), Some(&expected));
        assert_eq!(import(&mut rest).as_ref(), Some(&expected));
        assert!(rest.is_empty());
        for len in 0..one.len() {
            assert_eq!(import(&mut &one[..len]), None);
        }
        const ESCAPE: &str = "(\u{1b}[2J)";
        let hostile: [u8; jam_abi::record_bytes(NAME, ESCAPE)] = jam_abi::record(7, NAME, ESCAPE);
        assert_eq!(import(&mut &hostile[..]), None);
        const MARK: &str = "(u8\u{202e})";
        let hostile: [u8; jam_abi::record_bytes(NAME, MARK)] = jam_abi::record(7, NAME, MARK);
        assert_eq!(import(&mut &hostile[..]), None);
        type Types = jam_abi::entry::Types<(), u32, u8, i64>;
        let record: [u8; Types::RECORD_BYTES] = Types::record();
        let found = entry(&record).unwrap();
        assert_eq!((found.signature, found.args_bytes), (Types::SIGNATURE, 4));
        assert_eq!((found.element_bytes, found.reply_bytes, found.property), (1, 8, String::new()));
        assert_eq!(entry(&record[..19]), None);
    }
}

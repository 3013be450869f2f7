//! Signatures: 64-bit hashes of types, by which jam and receiver compare what each was compiled with.
//!
//! A hash is FNV-1a over text. That of a struct covers the types of its fields and not its name, so
//! both sides may declare it; that of a property type covers only the name that its crate gives it.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The hash of a type by its name, such as `u64`.
pub const fn of_name(name: &str) -> u64 {
    extend(OFFSET, name.as_bytes())
}

/// The hash of a type made of another one by `constructor`, such as `&` or `&[]`.
pub const fn of(constructor: &str, inner: u64) -> u64 {
    combine(of_name(constructor), inner)
}

/// A hash of `first` and then `second`.
pub const fn combine(first: u64, second: u64) -> u64 {
    extend(first, &second.to_le_bytes())
}

/// The hash of a struct with fields of these types, in this order.
pub const fn of_struct(fields: &[u64]) -> u64 {
    list("struct", fields)
}

/// The hash of an array of `len` elements.
pub const fn of_array(element: u64, len: usize) -> u64 {
    combine(of("[;]", element), len as u64)
}

/// The hash of a property type with this name.
pub const fn of_property(name: &str) -> u64 {
    of("property", of_name(name))
}

/// The signature of a function.
pub const fn of_function(parameters: &[u64], result: u64) -> u64 {
    combine(list("fn", parameters), result)
}

/// The hash of nothing: `()`, and a part of an entry that a jam does not have.
pub const UNIT: u64 = of_name("()");

/// The signature of an entry: the hashes of its property reference (`&T` or `&mut T`), of its
/// arguments, of the payload's element and of its result. [`UNIT`] is one that it does not have.
pub const fn of_entry(property: u64, args: u64, element: u64, result: u64) -> u64 {
    combine(list("entry", &[property, args, element]), result)
}

const fn list(constructor: &str, types: &[u64]) -> u64 {
    let mut hash = combine(of_name(constructor), types.len() as u64);
    let mut index = 0;
    while index < types.len() {
        hash = combine(hash, types[index]);
        index += 1;
    }
    hash
}

const fn extend(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(PRIME);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hashed_by_fnv() {
        // The published test vectors of FNV-1a.
        assert_eq!(of_name(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of_name("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(of_name("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_differs_has_another_hash() {
        let (byte, word) = (of_name("u8"), of_name("u64"));
        let hashes = [
            UNIT,
            byte,
            word,
            of("&", byte),
            of("&mut", byte),
            of("&[]", byte),
            of_array(byte, 2),
            of_array(byte, 3),
            of_struct(&[]),
            of_struct(&[byte]),
            of_struct(&[byte, word]),
            of_struct(&[word, byte]),
            of_struct(&[of_struct(&[byte]), word]),
            of_property("u8"),
            of_function(&[], byte),
            of_function(&[byte], UNIT),
            of_function(&[byte, byte], UNIT),
            of_function(&[byte], byte),
            of_entry(UNIT, byte, UNIT, byte),
            of_entry(byte, UNIT, UNIT, byte),
            of_entry(UNIT, UNIT, byte, byte),
            of_entry(UNIT, byte, UNIT, UNIT),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash), "hash {index} is not new");
        }
    }
}

//! The types of C in declarations of a jam, and the Rust types that they are.

use std::collections::HashMap;

use jam_abi::signature;

/// Types of C that are numbers, each with its Rust type.
const NUMBERS: &[(&str, &str)] = &[
    ("uint8_t", "u8"),
    ("uint16_t", "u16"),
    ("uint32_t", "u32"),
    ("uint64_t", "u64"),
    ("int8_t", "i8"),
    ("int16_t", "i16"),
    ("int32_t", "i32"),
    ("int64_t", "i64"),
    ("size_t", "usize"),
    ("uintptr_t", "usize"),
    ("ptrdiff_t", "isize"),
    ("intptr_t", "isize"),
    ("unsigned char", "u8"),
    ("signed char", "i8"),
    ("unsigned", "u32"),
    ("unsigned int", "u32"),
    ("int", "i32"),
    ("float", "f32"),
    ("double", "f64"),
    ("bool", "bool"),
    ("_Bool", "bool"),
];

/// What pointers may point to besides numbers: bytes.
const BYTES: [&str; 2] = ["void", "char"];

/// The types of one source.
#[derive(Debug, Default)]
pub(crate) struct Types {
    properties: HashMap<String, String>,
}

impl Types {
    /// Adds the type of a property.
    pub(crate) fn add_property(&mut self, name: &str, property: &str) {
        self.properties.insert(name.trim().to_owned(), property.to_owned());
    }

    /// The name of the property that a type is a pointer to, if it is.
    pub(crate) fn property(&self, c: &str) -> Option<&str> {
        let (_, pointee) = pointer(c)?;
        self.properties.get(&pointee).map(String::as_str)
    }

    /// The name of the type of the property that a type is a pointer to, and whether it may be
    /// changed through it.
    pub(crate) fn reference(&self, c: &str) -> Option<(String, bool)> {
        let (is_const, pointee) = pointer(c)?;
        self.properties.contains_key(&pointee).then_some((pointee, !is_const))
    }

    /// The hash of the Rust type that `c` is as a parameter or result; `None` if Rust has no such type.
    pub(crate) fn hash(&self, c: &str) -> Option<u64> {
        let c = normal(c);
        match &c[..] {
            "void" => return Some(signature::UNIT),
            "jam_bytes" => return Some(signature::of("&[]", signature::of_name("u8"))),
            "jam_bytes_mut" => return Some(signature::of("&mut []", signature::of_name("u8"))),
            "jam_text" => return Some(signature::of_name("&str")),
            _ => {}
        }
        let Some((is_const, pointee)) = pointer(&c) else {
            return number(&c).map(signature::of_name);
        };
        if let Some(property) = self.properties.get(&pointee) {
            let constructor = if is_const { "&" } else { "&mut" };
            return Some(signature::of(constructor, signature::of_property(property)));
        }
        let pointee = if BYTES.contains(&&pointee[..]) { "u8" } else { number(&pointee)? };
        let constructor = if is_const { "*const" } else { "*mut" };
        Some(signature::of(constructor, signature::of_name(pointee)))
    }

    /// The Rust type that `c` is as a parameter or result, as text; `None` if Rust has no such type.
    pub(crate) fn text(&self, c: &str) -> Option<String> {
        let c = normal(c);
        match &c[..] {
            "void" => return Some("()".to_owned()),
            "jam_bytes" => return Some("&[u8]".to_owned()),
            "jam_bytes_mut" => return Some("&mut [u8]".to_owned()),
            "jam_text" => return Some("&str".to_owned()),
            _ => {}
        }
        let Some((is_const, pointee)) = pointer(&c) else { return number(&c).map(str::to_owned) };
        let (reference, raw) = if is_const { ("&", "*const") } else { ("&mut ", "*mut") };
        if self.properties.contains_key(&pointee) {
            return Some(format!("{reference}{pointee}"));
        }
        let pointee = if BYTES.contains(&&pointee[..]) { "u8" } else { number(&pointee)? };
        Some(format!("{raw} {pointee}"))
    }

    /// The hash of arguments or of an element, of which only the size is known unless it is a number.
    pub(crate) fn value(&self, c: &str, bytes: u32) -> u64 {
        match number(&normal(c)) {
            Some(number) => signature::of_name(number),
            None => signature::of_array(signature::of_name("u8"), bytes as usize),
        }
    }

    /// Whether it is the type of which only two values are valid.
    pub(crate) fn is_bool(c: &str) -> bool {
        number(&normal(c)) == Some("bool")
    }

    /// The Rust type of arguments or of an element.
    pub(crate) fn rust(c: &str, bytes: u32) -> String {
        match number(&normal(c)) {
            Some(number) => number.to_owned(),
            None => format!("[u8; {bytes}]"),
        }
    }
}

fn number(c: &str) -> Option<&'static str> {
    NUMBERS.iter().find(|(name, _)| *name == c).map(|(_, rust)| *rust)
}

/// Whether it points to what is const, and to what it points, if it is a pointer.
fn pointer(c: &str) -> Option<(bool, String)> {
    let pointee = normal(c.trim().strip_suffix('*')?);
    let words: Vec<_> = pointee.split(' ').filter(|word| *word != "struct").collect();
    let named: Vec<_> = words.iter().copied().filter(|word| *word != "const").collect();
    Some((named.len() != words.len(), named.join(" ")))
}

/// With one space between words.
fn normal(c: &str) -> String {
    c.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use jam_abi::Abi;

    use super::*;

    jam_abi::property! {
        struct Table = "t@1";
    }

    #[test]
    fn types_of_c_are_those_of_rust() {
        let mut types = Types::default();
        types.add_property("table", "t@1");
        let types_of_c = [
            ("int64_t", i64::SIGNATURE, "i64"),
            ("  unsigned   int ", u32::SIGNATURE, "u32"),
            ("const uint8_t *", <*const u8>::SIGNATURE, "*const u8"),
            ("uint8_t const*", <*const u8>::SIGNATURE, "*const u8"),
            ("void *", <*mut u8>::SIGNATURE, "*mut u8"),
            ("const char*", <*const u8>::SIGNATURE, "*const u8"),
            ("table *", <&mut Table>::SIGNATURE, "&mut table"),
            ("const struct table *", <&Table>::SIGNATURE, "&table"),
            ("jam_bytes", <&[u8]>::SIGNATURE, "&[u8]"),
            ("jam_bytes_mut", <&mut [u8]>::SIGNATURE, "&mut [u8]"),
            ("jam_text", <&str>::SIGNATURE, "&str"),
            ("void", <()>::SIGNATURE, "()"),
        ];
        for (c, signature, text) in types_of_c {
            assert_eq!(types.hash(c), Some(signature), "{c}");
            assert_eq!(types.text(c).as_deref(), Some(text), "{c}");
        }
        for c in ["long", "other *", "table", "int **"] {
            assert_eq!((types.hash(c), types.text(c)), (None, None), "{c}");
        }
        assert_eq!(types.property("const table *"), Some("t@1"));
        assert_eq!(types.property("void"), None);
        assert_eq!(types.value("int32_t", 4), i32::SIGNATURE);
        assert_eq!(types.value("put_args", 16), signature::of_array(u8::SIGNATURE, 16));
        assert_eq!(Types::rust("put_args", 16), "[u8; 16]");
    }
}

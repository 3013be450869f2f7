//! What is in the shared library of a ried: its functions, and what it needs.

use object::{Object, ObjectSection, ObjectSymbol};

use crate::error::Error;
use crate::records::{Imported, imports};

/// Libraries that every process of a program has, by the beginnings of their names.
const PRESENT: &[&str] = &["libc.so", "libm.so", "libgcc_s.so", "ld-linux"];

/// A function of a ried, or one that it imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiedFunction {
    /// Its name.
    pub name: String,
    /// The hash of its types.
    pub signature: u64,
    /// Its types as text, such as `(&mut Table, u64) -> u64`.
    pub types: String,
}

impl From<Imported> for RiedFunction {
    fn from(record: Imported) -> Self {
        Self { name: record.name, signature: record.signature, types: record.types }
    }
}

/// What a ried offers and needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// What it offers to jams, sorted by name.
    pub exports: Vec<RiedFunction>,
    /// What the program must have, or a ried that was loaded before, sorted by name.
    pub imports: Vec<RiedFunction>,
    /// The libraries that the system's loader looks for.
    pub libraries: Vec<String>,
}

impl Interface {
    /// That of the ried called `name` in the library of these bytes.
    ///
    /// # Errors
    /// [`Error::Ried`], if it has none; [`Error::Object`], if the bytes are not a library.
    pub fn of(name: &str, library: &[u8]) -> Result<Self, Error> {
        let failed = |source| Error::Object { file: name.to_owned(), source };
        let object = object::File::parse(library).map_err(failed)?;
        let wrong =
            |message: &str| Error::Ried { ried: name.to_owned(), message: message.to_owned() };
        let is_data = |symbol: &object::Symbol<'_, '_>| {
            symbol.is_definition() && symbol.name() == Ok(jam_abi::RIED_SYMBOL)
        };
        if !object.dynamic_symbols().any(|symbol| is_data(&symbol)) {
            return Err(wrong(
                "no interface: declare its functions by ried::interface! { export { .. } }",
            ));
        }
        let records = |section: &str| {
            let Some(section) = object.section_by_name(section) else { return Ok(Vec::new()) };
            let bytes = section.data().map_err(failed)?;
            let records =
                imports(bytes).ok_or_else(|| wrong("a record of a function is malformed"))?;
            let mut functions: Vec<_> = records.into_iter().map(RiedFunction::from).collect();
            functions.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(functions)
        };
        let mut libraries = Vec::new();
        for needed in object.import_libraries().map_err(failed)? {
            let needed = needed.map_err(failed)?;
            libraries.push(String::from_utf8_lossy(needed.name()).into_owned());
        }
        Ok(Self {
            exports: records(jam_abi::RIED_EXPORT_SECTION)?,
            imports: records(jam_abi::RIED_IMPORT_SECTION)?,
            libraries,
        })
    }

    /// Checks what a ried must have, and what it may need.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let wrong = |message: String| Err(Error::Ried { ried: name.to_owned(), message });
        if self.exports.is_empty() {
            return wrong(
                "no functions: expected some in ried::interface! { export { .. } }".into(),
            );
        }
        let is_present = |library: &&String| PRESENT.iter().any(|known| library.starts_with(known));
        match self.libraries.iter().find(|library| !is_present(library)) {
            Some(library) => wrong(format!(
                "it needs {library}, which hosts may not have: expected libc, libm and libgcc_s \
                 only; link that library statically"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ried_may_need_what_every_process_has() {
        let function = RiedFunction { name: "f".into(), signature: 1, types: "()".into() };
        let interface = |library: &str| Interface {
            exports: vec![function.clone()],
            imports: Vec::new(),
            libraries: vec!["libc.so.6".into(), library.into()],
        };
        for present in ["libgcc_s.so.1", "libm.so.6", "ld-linux-aarch64.so.1", "libc.so"] {
            assert!(interface(present).check("r").is_ok(), "{present}");
        }
        let error = interface("libcrypto.so.3").check("r").unwrap_err().to_string();
        assert!(error.starts_with("ried `r`: it needs libcrypto.so.3, which hosts"), "{error}");
        let none = Interface { exports: Vec::new(), ..interface("libm.so.6") };
        let error = none.check("r").unwrap_err().to_string();
        assert!(error.starts_with("ried `r`: no functions"), "{error}");
        let own = std::fs::read(std::env::current_exe().expect("this program")).expect("its file");
        let error = Interface::of("r", &own).unwrap_err().to_string();
        assert!(error.starts_with("ried `r`: no interface"), "{error}");
        assert!(matches!(Interface::of("r", b"no library"), Err(Error::Object { .. })));
    }
}

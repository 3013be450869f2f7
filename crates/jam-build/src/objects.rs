//! What a compiler made of a source: objects, their sections and symbols, and the records that the
//! declarations of imports and entry have left in them.

use std::collections::HashMap;

use object::elf::STT_GNU_IFUNC;
use object::read::archive::ArchiveFile;
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SectionKind, SymbolFlags,
    SymbolIndex,
};

use crate::error::{Error, Site};
use crate::lines::Lines;

/// A section: its object, and its index in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Section {
    pub(crate) object: usize,
    pub(crate) index: SectionIndex,
}

/// What a relocation refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A byte of a section.
    At(Section, u64),
    /// A symbol that no object defines, or that the receiver has.
    Outside(String),
}

/// The functions that every receiver has, to which compilers make calls that no source shows.
pub(crate) const IMPLICIT: &[&str] =
    &["__jam_panic", "bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// The objects of one source.
pub(crate) struct Objects<'d> {
    /// The file, as its author names it.
    pub(crate) file: String,
    /// What the author's items are in, which no message shows.
    module: String,
    pub(crate) objects: Vec<object::File<'d>>,
    /// Where each global symbol is defined: in the first object, or else in any other.
    defined: HashMap<String, (usize, SymbolIndex)>,
}

impl<'d> Objects<'d> {
    /// Reads an object, or an archive, whose objects that begin with `crate_prefix` come first.
    pub(crate) fn parse(file: &str, bytes: &'d [u8], crate_prefix: &str) -> Result<Self, Error> {
        let failed = |source| Error::Object { file: file.to_owned(), source };
        let mut objects = Vec::new();
        if bytes.starts_with(b"!<arch>\n") {
            for member in ArchiveFile::parse(bytes).map_err(failed)?.members() {
                let member = member.map_err(failed)?;
                if !member.name().ends_with(b".o") {
                    continue;
                }
                let object = object::File::parse(member.data(bytes).map_err(failed)?);
                let object = object.map_err(failed)?;
                if member.name().starts_with(crate_prefix.as_bytes()) {
                    objects.insert(0, object);
                } else {
                    objects.push(object);
                }
            }
        } else {
            objects.push(object::File::parse(bytes).map_err(failed)?);
        }
        let mut defined = HashMap::new();
        for (index, object) in objects.iter().enumerate() {
            for symbol in object.symbols().filter(|s| s.is_global() && s.is_definition()) {
                let name = symbol.name().map_err(failed)?;
                defined.entry(name.to_owned()).or_insert((index, symbol.index()));
            }
        }
        let module = format!("{crate_prefix}::source::");
        Ok(Self { file: file.to_owned(), module, objects, defined })
    }

    /// Where the symbol with this name is, if an object defines it.
    pub(crate) fn definition(&self, name: &str) -> Option<(Section, u64)> {
        let (object, symbol) = *self.defined.get(name)?;
        let symbol = self.objects[object].symbol_by_index(symbol).ok()?;
        Some((Section { object, index: symbol.section_index()? }, symbol.address()))
    }

    pub(crate) fn section(&self, section: Section) -> Result<object::Section<'d, '_>, Error> {
        self.objects[section.object].section_by_index(section.index).map_err(|e| self.failed(e))
    }

    pub(crate) fn failed(&self, source: object::Error) -> Error {
        Error::Object { file: self.file.clone(), source }
    }

    /// What a relocation of an object refers to. Names in `outside` are the receiver's, even if an
    /// object defines them.
    pub(crate) fn target(
        &self,
        object: usize,
        target: RelocationTarget,
        outside: impl Fn(&str) -> bool,
    ) -> Result<Target, Error> {
        let symbol = match target {
            RelocationTarget::Section(index) => {
                return Ok(Target::At(Section { object, index }, 0));
            }
            RelocationTarget::Symbol(symbol) => symbol,
            _ => return Err(self.records("a relocation that refers to nothing")),
        };
        let found = self.objects[object].symbol_by_index(symbol).map_err(|e| self.failed(e))?;
        let name = found.name().map_err(|e| self.failed(e))?;
        let (object, found) = match self.defined.get(name) {
            Some((object, symbol)) if found.section_index().is_none() && !outside(name) => {
                let found = self.objects[*object].symbol_by_index(*symbol);
                (*object, found.map_err(|e| self.failed(e))?)
            }
            _ => (object, found),
        };
        // What it refers to is not the function but what chooses one, when a program is loaded.
        if matches!(found.flags(), SymbolFlags::Elf { st_info, .. } if st_info.st_type() == STT_GNU_IFUNC)
        {
            return Err(self.records(format!(
                "`{name}` is chosen when a program is loaded: expected a plain function, without the \
                 attributes ifunc and target_clones"
            )));
        }
        Ok(match found.section_index() {
            Some(index) => Target::At(Section { object, index }, found.address()),
            None => Target::Outside(name.to_owned()),
        })
    }

    /// The name of what is at `offset` of a section, for messages.
    pub(crate) fn name_at(&self, section: Section, offset: u64) -> String {
        let symbols = self.objects[section.object].symbols();
        let inside = symbols.filter(|symbol| {
            symbol.section_index() == Some(section.index)
                && symbol.kind() != object::SymbolKind::Section
                // `$x` and `$d` say only whether code or data begins there, on aarch64.
                && !symbol.name().is_ok_and(|name| name.starts_with('$'))
                && symbol.address() <= offset
        });
        match inside.max_by_key(|symbol| symbol.address()).and_then(|symbol| symbol.name().ok()) {
            Some(name) => self.readable(name),
            None => {
                let name =
                    self.section(section).ok().and_then(|s| s.name().ok().map(str::to_owned));
                name.unwrap_or_default()
            }
        }
    }

    /// The bytes of every section with this name.
    pub(crate) fn sections_named(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        for section in self.objects.iter().flat_map(|object| object.sections()) {
            if section.name().is_ok_and(|found| found == name) {
                bytes.extend_from_slice(section.data().map_err(|e| self.failed(e))?);
            }
        }
        Ok(bytes)
    }

    /// The line of the source that the code at `offset` of a section is of.
    pub(crate) fn site(&self, section: Section, offset: u64) -> Site {
        let lines = Lines::of(&self.objects[section.object]);
        let found = lines.and_then(|lines| lines.find(section.index, offset, &self.file));
        let (line, column) = found.unwrap_or_default();
        Site { file: self.file.clone(), line, column }
    }

    /// A symbol as its author knows it.
    pub(crate) fn readable(&self, symbol: &str) -> String {
        format!("{:#}", rustc_demangle::demangle(symbol)).replace(&self.module, "")
    }

    /// An error of what the compiler left in the objects.
    pub(crate) fn records(&self, message: impl Into<String>) -> Error {
        Error::Records { file: self.file.clone(), message: message.into() }
    }
}

/// Whether a section's content is code.
pub(crate) fn is_text(section: &object::Section<'_, '_>) -> bool {
    section.kind() == SectionKind::Text
}

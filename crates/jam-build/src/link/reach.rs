//! The sections that the entry reaches, and what may not be among them.

use std::collections::{HashSet, VecDeque};

use object::{ObjectSection, RelocationFlags, SectionKind};

use super::{ENTRY, Request, machines};
use crate::error::Error;
use crate::objects::{Objects, Section, Target, is_text};

/// A reached section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) section: Section,
    pub(super) is_text: bool,
}

/// A relocation of a reached section.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    /// Where it is: a section, and an offset in it.
    pub(super) section: Section,
    pub(super) offset: u64,
    pub(super) target: Target,
    pub(super) addend: i64,
    /// The number of its kind, by the machine.
    pub(super) kind: u32,
}

/// What the entry reaches.
#[derive(Debug)]
pub(super) struct Reached {
    /// The sections, the entry's first, each after the one that refers to it first.
    pub(super) parts: Vec<Part>,
    pub(super) references: Vec<Reference>,
    /// Where in the first section the entry is.
    pub(super) entry: u64,
}

impl Reached {
    pub(super) fn from_entry(objects: &Objects<'_>, request: &Request<'_>) -> Result<Self, Error> {
        let (first, entry) =
            objects.definition(ENTRY).ok_or_else(|| objects.records("no entry in its object"))?;
        let mut reached = Self { parts: Vec::new(), references: Vec::new(), entry };
        let mut seen = HashSet::from([first]);
        let mut queue = VecDeque::from([first]);
        while let Some(section) = queue.pop_front() {
            let before = reached.references.len();
            reached.add(objects, request, section)?;
            for reference in &reached.references[before..] {
                if let Target::At(section, offset) = reference.target {
                    check_kind(objects, request, reference, section, offset)?;
                    if seen.insert(section) {
                        queue.push_back(section);
                    }
                }
            }
        }
        Ok(reached)
    }

    /// Adds a section and its relocations.
    fn add(
        &mut self,
        objects: &Objects<'_>,
        request: &Request<'_>,
        section: Section,
    ) -> Result<(), Error> {
        let content = objects.section(section)?;
        self.parts.push(Part { section, is_text: is_text(&content) });
        for (offset, relocation) in content.relocations() {
            let RelocationFlags::Elf { r_type, .. } = relocation.flags() else {
                return Err(objects.records("an object that is not ELF"));
            };
            let is_outside = |name: &str| request.is_outside(name);
            let target = objects.target(section.object, relocation.target(), is_outside)?;
            let kind = r_type.0;
            let reference =
                Reference { section, offset, target, addend: relocation.addend(), kind };
            if !machines::is_nothing(request.machine, kind) {
                check_outside(objects, request, &reference)?;
                self.references.push(reference);
            }
        }
        Ok(())
    }
}

/// Checks that a reference to another section is to one that a blob can contain.
fn check_kind(
    objects: &Objects<'_>,
    request: &Request<'_>,
    reference: &Reference,
    section: Section,
    offset: u64,
) -> Result<(), Error> {
    let content = objects.section(section)?;
    let is_constant = content.name().is_ok_and(|name| name.starts_with(".data.rel.ro"));
    // A reference relative to the instruction points past what it means.
    let name = || {
        let named = objects.name_at(section, offset.saturating_add_signed(reference.addend.max(0)));
        let last = named.rsplit("::").next().unwrap_or_default();
        // Compilers divide a static into parts `NAME.0`, `NAME.1`.
        last.split('.').next().unwrap_or_default().to_owned()
    };
    let site = |symbol: &str| request.site(objects, reference.section, reference.offset, symbol);
    match content.kind() {
        SectionKind::Text
        | SectionKind::ReadOnlyData
        | SectionKind::ReadOnlyString
        | SectionKind::ReadOnlyDataWithRel => Ok(()),
        SectionKind::Data if is_constant => Ok(()),
        SectionKind::Tls | SectionKind::UninitializedTls | SectionKind::TlsVariables => {
            let symbol = name();
            Err(Error::ThreadLocal { site: site(&symbol), symbol })
        }
        SectionKind::Data | SectionKind::UninitializedData => {
            let symbol = name();
            Err(Error::MutableStatic { site: site(&symbol), symbol })
        }
        _ => Err(objects.records(format!("a reference to section {:?}", content.name()))),
    }
}

/// Checks that a reference to what no object defines is to an import.
fn check_outside(
    objects: &Objects<'_>,
    request: &Request<'_>,
    reference: &Reference,
) -> Result<(), Error> {
    let Target::Outside(name) = &reference.target else { return Ok(()) };
    // The call that finds a thread-local value comes with a reference to the value, whose name says
    // more.
    if request.is_outside(name) || name == "__tls_get_addr" {
        return Ok(());
    }
    let site = objects.site(reference.section, reference.offset);
    let symbol = objects.readable(name);
    if machines::is_thread_local(request.machine, reference.kind) {
        return Err(Error::ThreadLocal { symbol, site });
    }
    Err(Error::Undeclared { symbol, site })
}

//! Packages: those that a program gets while it runs, and [`package!`](crate::package).

pub use jam_format::PackageError;
use jam_format::{Digest, ElementKind, Machine};

use crate::sender::Code;

/// A package that a program got while it ran, such as a file: its jams and rieds for this machine.
#[derive(Debug)]
pub struct Package<'a>(jam_format::Package<'a>);

impl<'a> Package<'a> {
    /// The package that `bytes` are.
    ///
    /// # Errors
    /// They are not one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackageError> {
        Ok(Self(jam_format::Package::parse(bytes)?))
    }

    /// The blob of the jam with this name, to make a [`LoadedJam`](crate::LoadedJam) of.
    pub fn blob(&self, name: &str) -> Option<&'a [u8]> {
        self.of_kind(ElementKind::Jam).find(|jam| jam.name == name).map(|jam| jam.bytes)
    }

    /// The library of the ried with this name, to [load](crate::load_ried) it.
    pub fn ried(&self, name: &str) -> Option<Code> {
        let ried = self.of_kind(ElementKind::Ried).find(|ried| ried.name == name)?;
        Some(Code::new(name, ried.bytes))
    }

    /// The digests of its jams and rieds, to [admit](crate::Receiver::admit) them.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        let kinds = [ElementKind::Jam, ElementKind::Ried];
        kinds.into_iter().flat_map(|kind| self.of_kind(kind)).map(|element| element.digest)
    }

    fn of_kind(&self, kind: ElementKind) -> impl Iterator<Item = &jam_format::PackageElement<'a>> {
        let is_here = move |element: &&jam_format::PackageElement<'a>| {
            element.kind == kind && Machine::CURRENT == Some(element.machine)
        };
        self.0.elements().iter().filter(is_here)
    }
}

/// Includes a package that the build script has built with `jam_build::package`: for each jam a
/// module with its typed sender, its Local Function and its public types.
///
/// Every process of the program then knows the package: it has the jams' Local Functions, and runs
/// their code whatever its policy, except `Nothing`.
///
/// ```ignore
/// mod jams {
///     jam::package!("jams");
/// }
/// let stored = table.inject(&jams::indirect_put::INDIRECT_PUT, args, &bytes)?;
/// ```
#[macro_export]
macro_rules! package {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));

        #[allow(unsafe_code)]
        const _: () = {
            #[used]
            // SAFETY: a section of records of this type, which the crate `jam` reads.
            #[unsafe(link_section = "gossamer_jam_packages")]
            static RECORD: &$crate::PackageData = &PACKAGE;
        };
    };
}

//! Packages that a program was built with, and the code of their jams.

use jam_abi::Element;
pub use jam_format::PackageError;
use jam_format::{Digest, ElementKind, Machine};

/// The blob of an element for this machine, if its package has one.
pub(crate) fn element_code(element: &Element) -> Option<&'static [u8]> {
    let package = jam_format::Package::parse(element.package.bytes).ok()?;
    Some(package.element(element.id, Machine::CURRENT?)?.bytes)
}

/// A package that a program got while it ran, such as a file: its jams for this machine.
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
        self.jams().find(|jam| jam.name == name).map(|jam| jam.bytes)
    }

    /// The digests of its jams, to [admit](crate::Receiver::admit) them.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.jams().map(|jam| jam.digest)
    }

    fn jams(&self) -> impl Iterator<Item = &jam_format::PackageElement<'a>> {
        let is_here = |element: &&jam_format::PackageElement<'a>| {
            element.kind == ElementKind::Jam && Machine::CURRENT == Some(element.machine)
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

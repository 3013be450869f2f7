//! Packages that a program was built with: [`package!`](crate::package), and their code.

use jam_abi::{Element, PackageData};
use jam_format::{Digest, ElementKind, Machine, Package, PackageElement};

/// The blob of an element for this machine, if its package has one.
pub(crate) fn element_code(element: &Element) -> Option<&'static [u8]> {
    element_bytes(element.package, element.id)
}

/// The bytes of an element of this package for this machine, if it has some.
pub(crate) fn element_bytes(package: &PackageData, id: u16) -> Option<&'static [u8]> {
    let package = Package::parse(package.bytes).ok()?;
    Some(package.element(id, Machine::CURRENT?)?.bytes)
}

/// The digests of the rieds of a package that the program was built with, for this machine.
pub(crate) fn ried_digests(package: &PackageData) -> Vec<Digest> {
    let Ok(package) = Package::parse(package.bytes) else { return Vec::new() };
    let is_here = |element: &&PackageElement<'_>| {
        element.kind == ElementKind::Ried && Machine::CURRENT == Some(element.machine)
    };
    package.elements().iter().filter(is_here).map(|ried| ried.digest).collect()
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

//! Packages that a program was built with: [`package!`](crate::package), and their code.

use jam_abi::{Element, PackageData};
use jam_format::{Machine, Package, PackageElement};

/// The blob of an element for this machine, if its package has one, and the types of its functions.
pub(crate) fn element_code(element: &Element) -> Option<(&'static [u8], &'static str)> {
    let package = Package::parse(element.package.bytes).ok()?;
    let code = package.element(element.id, Machine::CURRENT?)?.bytes;
    Some((code, package.types().of_element(element.id).text()))
}

/// The bytes of an element of this package for this machine, if it has some.
pub(crate) fn element_bytes(package: &PackageData, id: u16) -> Option<&'static [u8]> {
    let package = Package::parse(package.bytes).ok()?;
    Some(package.element(id, Machine::CURRENT?)?.bytes)
}

/// The elements of a package for this machine. It is parsed, and so hashed, once for all of them.
pub(crate) fn elements_here(package: &PackageData) -> Vec<PackageElement<'static>> {
    let Ok(package) = Package::parse(package.bytes) else { return Vec::new() };
    let elements = package.elements().iter();
    elements.filter(|element| Machine::CURRENT == Some(element.machine)).copied().collect()
}

/// Includes a package that the build script has built with `jam_build::package`: for each jam a
/// module with the constant that names it in calls, its Local Function and its public types. The
/// package that uses this needs `gossamer-jam` among its dependencies, as the crate `jam`.
///
/// Every process of the program then knows the package: it has the jams' Local Functions, and admits
/// their code under every policy but `Nothing`.
///
/// Local Functions in Rust are compiled with the profile of the program, injected code without overflow checks
/// and debug assertions: where a jam's arithmetic overflows, its Local Function panics in a debug build,
/// and its injected code wraps.
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

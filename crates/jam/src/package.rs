//! Packages that a program was built with, and the code of their jams.

use jam_abi::Element;
use jam_format::Machine;

/// The blob of an element for this machine, if its package has one.
pub(crate) fn element_code(element: &Element) -> Option<&'static [u8]> {
    let package = jam_format::Package::parse(element.package.bytes).ok()?;
    Some(package.element(element.id, Machine::CURRENT?)?.bytes)
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

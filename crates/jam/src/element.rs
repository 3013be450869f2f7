//! The code of packages that a program was built with.

use jam_abi::{Element, PackageData};
use jam_format::{Digest, ElementKind, Machine, Package};

/// The blob of an element for this machine, if its package has one.
pub(crate) fn element_code(element: &Element) -> Option<&'static [u8]> {
    element_bytes(element.package, element.id)
}

/// The bytes of an element of this package for this machine, if it has some.
pub(crate) fn element_bytes(package: &PackageData, id: u16) -> Option<&'static [u8]> {
    let package = Package::parse(package.bytes).ok()?;
    Some(package.element(id, Machine::CURRENT?)?.bytes)
}

/// Kind, id and digest of each element for this machine. A package is parsed, and so hashed, once for
/// all of them.
pub(crate) fn digests(package: &PackageData) -> Vec<(ElementKind, u16, Digest)> {
    let Ok(package) = Package::parse(package.bytes) else { return Vec::new() };
    let elements = package.elements().iter();
    let here = elements.filter(|element| Machine::CURRENT == Some(element.machine));
    here.map(|element| (element.kind, element.id, element.digest)).collect()
}

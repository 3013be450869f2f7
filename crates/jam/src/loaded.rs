//! [`Package`]: a package that a program obtains while it runs.

use jam_abi::entry::{Part, PropertyPart};
pub use jam_format::PackageError;
use jam_format::{Digest, ElementKind, Machine};

use crate::error::JamError;
use crate::sender::{Code, LoadedJam};

/// A package that a program obtains while it runs, from a file for instance: its jams and rieds for
/// this machine.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// jam::property! {
///     struct Shop = "shop.Shop@1"; // as in the jam's source; `open!` names the real type
/// }
///
/// let bytes = std::fs::read("prices.jampkg")?;
/// let package = jam::Package::parse(&bytes)?;
/// let price: jam::LoadedJam<&'static mut Shop, u64, (), u64> = package.find("price")?;
/// # Ok(())
/// # }
/// ```
///
/// Each receiver decides whether it admits the jams. If a signer of the rack has signed the package
/// (`gossamer jam sign`), they carry a proof of that; otherwise a receiver with the default policy runs
/// them only after it has [admitted](crate::Receiver::admit) their [digests](Self::digests).
/// [`packages`](crate::packages) has the packages that `gossamer jam send` has delivered.
#[derive(Debug)]
pub struct Package<'a>(jam_format::Package<'a>);

impl<'a> Package<'a> {
    /// Parses a package.
    ///
    /// # Errors
    /// `bytes` is not a package.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackageError> {
        Ok(Self(jam_format::Package::parse(bytes)?))
    }

    /// The blob of the jam with this name, for [`LoadedJam::from_blob`](crate::LoadedJam::from_blob).
    pub fn blob(&self, name: &str) -> Option<&'a [u8]> {
        self.of_kind(ElementKind::Jam).find(|jam| jam.name == name).map(|jam| jam.bytes)
    }

    /// The library of the ried with this name, to [load](crate::load_ried) it. It carries the proof of
    /// the package's signature, if there is one.
    pub fn ried(&self, name: &str) -> Option<Code> {
        let ried = self.of_kind(ElementKind::Ried).find(|ried| ried.name == name)?;
        Some(Code::loaded(name, ried.bytes, &self.0.proof().unwrap_or_default(), false))
    }

    /// The jam with this name: `P` is `&T` or `&mut T` of the opaque type that [`property!`](crate::property)
    /// declares, not of the type that `open!` names, or `()`; `A` the arguments, `E` the element of the
    /// payload and `R` the result. Its code carries the proof of the package's signature, if there is
    /// one.
    ///
    /// # Errors
    /// [`JamError::Unusable`] if the package has no such jam, or the jam has other types.
    pub fn find<P: PropertyPart, A: Part, E: Part, R: Part>(
        &self,
        name: &str,
    ) -> Result<LoadedJam<P, A, E, R>, JamError> {
        let jam = self.of_kind(ElementKind::Jam).find(|jam| jam.name == name);
        let jam = jam.ok_or_else(|| no_such_jam(name, self.0.name()))?;
        let types = self.0.types().of_element(jam.id);
        LoadedJam::from_signed(jam.bytes, &self.0.proof().unwrap_or_default(), false, types.text())
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

pub(crate) fn no_such_jam(jam: &str, package: &str) -> JamError {
    let machine = Machine::CURRENT.map_or(std::env::consts::ARCH, Machine::name);
    let reason = format!("package {package} has no jam of this name for {machine}");
    JamError::Unusable { jam: jam.to_owned(), reason }
}

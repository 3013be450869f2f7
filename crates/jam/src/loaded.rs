//! [`Package`]: a package that a program got while it ran.

use jam_abi::entry::{Part, PropertyPart};
pub use jam_format::PackageError;
use jam_format::{Digest, ElementKind, Machine};

use crate::error::JamError;
use crate::sender::{Code, LoadedJam};

/// A package that a program got while it ran, such as a file: its jams and rieds for this machine.
///
/// Receivers run its jams if they admit them: those of a package that a signer of the rack has signed
/// (`gossamer jam sign`) carry a proof of that. [`packages`](crate::packages) has those that
/// `gossamer jam send` has brought into this job.
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

    /// The library of the ried with this name, to [load](crate::load_ried) it. If the package is
    /// signed, receivers are shown that with it.
    pub fn ried(&self, name: &str) -> Option<Code> {
        let ried = self.of_kind(ElementKind::Ried).find(|ried| ried.name == name)?;
        Some(Code::loaded(name, ried.bytes, &self.0.proof().unwrap_or_default(), false))
    }

    /// The jam with this name, if it has these types. If the package is signed, receivers are shown
    /// that with its code.
    ///
    /// # Errors
    /// [`JamError::Unusable`], if there is none, or it has other types.
    pub fn find<P: PropertyPart, A: Part, E: Part, R: Part>(
        &self,
        name: &str,
    ) -> Result<LoadedJam<P, A, E, R>, JamError> {
        let blob = self.blob(name).ok_or_else(|| no_such_jam(name, self.0.name()))?;
        LoadedJam::from_signed(blob, &self.0.proof().unwrap_or_default(), false)
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

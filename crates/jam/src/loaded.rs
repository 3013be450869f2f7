//! [`Package`]: a package that a program got while it ran.

use jam_abi::entry::{Part, PropertyPart};
pub use jam_format::PackageError;
use jam_format::{Digest, ElementKind, Machine};

use crate::error::JamError;
use crate::sender::LoadedJam;

/// A package that a program got while it ran, such as a file: its jams for this machine.
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
        self.jams().find(|jam| jam.name == name).map(|jam| jam.bytes)
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

pub(crate) fn no_such_jam(jam: &str, package: &str) -> JamError {
    let machine = Machine::CURRENT.map_or(std::env::consts::ARCH, Machine::name);
    let reason = format!("package {package} has no jam of this name for {machine}");
    JamError::Unusable { jam: jam.to_owned(), reason }
}

//! The certificates that an authority has signed, and those that it has revoked.
//!
//! The authority notes each certificate that it signs in `certificates.toml`. It signs the list of
//! revoked ones (a CRL, RFC 5280) into `revoked.pem`. That file is no secret: it is distributed as
//! cards are, and stored in a member's directory beside the authority's certificate ([`read`]). TLS
//! checks each peer's certificate against it.
//!
//! Each list has a higher number (RFC 5280, section 5.2.3) than all earlier lists, so that an old list
//! does not replace a newer one ([`List::is_older_than`]).

use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use daemon_protocol::{Name, Role};
use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};
use rustix::fs::OFlags;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use crate::files;
use crate::security::member::IdentityError;

/// The list in the directory of a member, and in that of the authority.
pub(crate) const REVOKED: &str = "revoked.pem";
/// The most bytes that are read of a list: enough for 200,000 revoked certificates of about 40 bytes
/// each, in PEM.
pub(crate) const LARGEST_LIST: u64 = 16 << 20;
/// The file of signed certificates.
pub(crate) const CERTIFICATES: &str = "certificates.toml";

/// The end of a list's validity, for programs that check it. A list is replaced at the next
/// revocation, and stays valid longer than any certificate in it.
const LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);

/// All certificates of an authority that have not expired.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Certificates {
    #[serde(default)]
    certificates: Vec<Signed>,
}

/// A certificate that was signed.
#[derive(Debug, Serialize, Deserialize)]
struct Signed {
    name: Name,
    role: Role,
    /// Its number, in hexadecimal.
    serial: String,
    /// When it expires, in seconds since 1970.
    until: u64,
    /// When it was revoked, if it was.
    revoked: Option<u64>,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

impl Certificates {
    /// Notes a certificate that is about to be signed. Returns its serial number, which is unique.
    pub(crate) fn note(
        &mut self,
        name: &Name,
        role: Role,
        until: SystemTime,
    ) -> io::Result<SerialNumber> {
        let now = seconds(SystemTime::now());
        self.certificates.retain(|certificate| certificate.until > now);
        // Positive and without a leading zero, so that all encodings of it are equal.
        let number = files::random_number()? >> 1 | 1 << 126;
        let (name, until, revoked) = (name.clone(), seconds(until), None);
        let serial = format!("{number:032x}");
        self.certificates.push(Signed { name, role, serial, until, revoked });
        Ok(number.to_be_bytes().to_vec().into())
    }

    /// Whether this certificate was signed here, is not revoked, and has not expired.
    pub(crate) fn has_valid(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let (number, now) = (certificate.raw_serial(), seconds(SystemTime::now()));
        self.certificates.iter().any(|signed| {
            let serial = u128::from_str_radix(&signed.serial, 16);
            let is_it = serial.is_ok_and(|serial| serial.to_be_bytes() == *number);
            is_it && signed.revoked.is_none() && signed.until > now
        })
    }

    /// Revokes all certificates of `name`. Returns the role of each that has not expired, and how many
    /// of these were not revoked before.
    pub(crate) fn revoke(&mut self, name: &Name) -> (Vec<Role>, usize) {
        let now = seconds(SystemTime::now());
        let theirs = self.certificates.iter_mut().filter(|signed| signed.name == *name);
        let (mut roles, mut count) = (Vec::new(), 0);
        for signed in theirs.filter(|signed| signed.until > now) {
            roles.push(signed.role);
            if signed.revoked.is_none() {
                signed.revoked = Some(now);
                count += 1;
            }
        }
        (roles, count)
    }

    /// The signed list of revoked certificates that have not expired, in PEM. Its number is higher than
    /// that of `last`, even if the clock was set back.
    pub(crate) fn list(
        &self,
        issuer: &Issuer<'static, KeyPair>,
        last: Option<&List>,
    ) -> Result<String, rcgen::Error> {
        let now = SystemTime::now();
        let by_clock = BigUint::from(seconds(now));
        let number = last.map_or(by_clock.clone(), |last| by_clock.max(&last.number + 1u32));
        let revoked_certs = self.certificates.iter().filter_map(|signed| {
            let number = u128::from_str_radix(&signed.serial, 16).ok()?;
            Some(RevokedCertParams {
                serial_number: number.to_be_bytes().to_vec().into(),
                revocation_time: time(signed.revoked?).into(),
                reason_code: None,
                invalidity_date: None,
            })
        });
        let list = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + LIFE).into(),
            crl_number: number.to_bytes_be().into(),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(issuer)?.pem()
    }
}

/// A list that the rack's authority has signed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct List {
    number: BigUint,
    der: CertificateRevocationListDer<'static>,
}

/// Why a list is not one of this rack.
#[derive(Debug, Error)]
pub(crate) enum ListError {
    #[error("not a list of revoked certificates")]
    Malformed,
    #[error("the list of revoked certificates has no number")]
    Unnumbered,
    #[error("the list of revoked certificates is not signed by this rack's authority")]
    Foreign,
}

impl List {
    /// Reads a list, and checks that the authority with the certificate `ca` has signed it.
    pub(crate) fn verify(
        der: CertificateRevocationListDer<'static>,
        ca: &CertificateDer<'_>,
    ) -> Result<Self, ListError> {
        let (_, authority) = X509Certificate::from_der(ca).map_err(|_| ListError::Foreign)?;
        let (_, list) =
            CertificateRevocationList::from_der(&der).map_err(|_| ListError::Malformed)?;
        list.verify_signature(authority.public_key()).map_err(|_| ListError::Foreign)?;
        let number = list.crl_number().ok_or(ListError::Unnumbered)?.clone();
        Ok(Self { number, der })
    }

    /// Whether the authority has signed `other` later.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        self.number < other.number
    }

    /// The list in DER, for TLS.
    pub(crate) fn der(&self) -> &CertificateRevocationListDer<'static> {
        &self.der
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list {}", self.number)
    }
}

/// The list in a member's directory, if there is one.
pub(crate) fn read(
    directory: &Path,
) -> Result<Option<CertificateRevocationListDer<'static>>, IdentityError> {
    let path = directory.join(REVOKED);
    let pem = match files::read_regular(&path, LARGEST_LIST, OFlags::empty()) {
        Ok(pem) => pem,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(IdentityError::File { path, error }),
    };
    CertificateRevocationListDer::from_pem_slice(&pem).map(Some).map_err(|_| {
        let reason = "not a list of revoked certificates".into();
        IdentityError::Content { path, reason }
    })
}

/// The list in a member's directory, if the authority with the certificate `ca`, in PEM, has signed it.
pub(crate) fn known(directory: &Path, ca: &str) -> Option<List> {
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).ok()?;
    List::verify(read(directory).ok()??, &ca).ok()
}

/// Whether there is a list in a member's directory that the authority with the certificate `ca`, in PEM,
/// has not signed.
pub(crate) fn is_foreign(directory: &Path, ca: &str) -> bool {
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).ok();
    let list = read(directory).ok().flatten();
    list.zip(ca).is_some_and(|(list, ca)| List::verify(list, &ca).is_err())
}

/// Whether the list in a member's directory is newer than `list`, both of the authority with the
/// certificate `ca`; the latter two are in PEM.
pub(crate) fn has_newer(directory: &Path, list: &str, ca: &str) -> bool {
    let offered = CertificateRevocationListDer::from_pem_slice(list.as_bytes()).ok();
    let ca_der = CertificateDer::from_pem_slice(ca.as_bytes()).ok();
    let offered = offered.zip(ca_der).and_then(|(list, ca)| List::verify(list, &ca).ok());
    offered.zip(known(directory, ca)).is_some_and(|(offered, known)| offered.is_older_than(&known))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::security::authority::{Authority, good_for, init_rack, request};

    /// A rack whose authority has signed two lists, in this order.
    fn two_lists(place: &Path) -> [List; 2] {
        init_rack(place, &"r".parse().unwrap(), None).unwrap();
        let (authority, ca) = (Authority::open(place).unwrap(), certificate(place));
        let asked = request(&place.join("b")).unwrap();
        ["b", "c"].map(|name| {
            let name = name.parse().unwrap();
            authority.sign(&asked, &name, Role::Viewer, good_for(1)).unwrap();
            authority.revoke(&name).unwrap();
            List::verify(read(&place.join("ca")).unwrap().unwrap(), &ca).unwrap()
        })
    }

    fn certificate(place: &Path) -> CertificateDer<'static> {
        let path: PathBuf = place.join("ca/certificate.pem");
        CertificateDer::from_pem_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn lists_are_ordered_also_within_a_second() {
        let place = tempfile::tempdir().unwrap();
        let [first, second] = two_lists(place.path());
        assert!(first.is_older_than(&second) && !second.is_older_than(&first));
        assert!(!first.is_older_than(&first));
    }

    #[test]
    fn a_list_of_another_authority_is_refused() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        two_lists(ours.path());
        let [list, _] = two_lists(theirs.path());
        let verified = List::verify(list.der, &certificate(ours.path()));
        assert!(matches!(verified, Err(ListError::Foreign)), "{verified:?}");
        let garbage = CertificateRevocationListDer::from(vec![0x30, 0x01]);
        let verified = List::verify(garbage, &certificate(ours.path()));
        assert!(matches!(verified, Err(ListError::Malformed)), "{verified:?}");
    }
}

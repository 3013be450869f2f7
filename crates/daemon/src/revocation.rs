//! What an authority has signed, and what of that it has taken back.
//!
//! The authority notes every certificate that it signs in `certificates.toml`. What it has taken back
//! it signs as a list (a CRL, RFC 5280) into `revoked.pem`, a file that is no secret: it travels as
//! cards do, and lies in a member's directory beside the authority's certificate ([`read`]). TLS
//! compares every certificate that is shown with it.

use crate::{
    files,
    identity::{IdentityError, Name, Role},
};
use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::{
    CertificateRevocationListDer,
    pem::{self, PemObject},
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// The list in the directory of a member, and in that of the authority.
pub(crate) const REVOKED: &str = "revoked.pem";
/// What the authority has signed.
pub(crate) const CERTIFICATES: &str = "certificates.toml";

/// Until when a list counts, for programs that ask: it is replaced when there is more on it, and
/// outlives every certificate that it names.
const LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);

/// All certificates of an authority that have not ended.
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
    /// When it ends, in seconds since 1970.
    until: u64,
    /// When it was taken back, if it was.
    revoked: Option<u64>,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

impl Certificates {
    /// Notes a certificate that is about to be signed; its number, which no other has.
    pub(crate) fn note(
        &mut self,
        name: &Name,
        role: Role,
        until: SystemTime,
    ) -> io::Result<SerialNumber> {
        let now = seconds(SystemTime::now());
        self.certificates.retain(|certificate| certificate.until > now);
        // Positive, and without a zero in front: so it is the same number in every encoding.
        let number = files::random_number()? >> 1 | 1 << 126;
        let (name, until, revoked) = (name.clone(), seconds(until), None);
        let serial = format!("{number:032x}");
        self.certificates.push(Signed { name, role, serial, until, revoked });
        Ok(number.to_be_bytes().to_vec().into())
    }

    /// Takes back all certificates of `name`; what each of them allowed.
    pub(crate) fn revoke(&mut self, name: &Name) -> Vec<Role> {
        let now = seconds(SystemTime::now());
        let theirs = self.certificates.iter_mut().filter(|signed| signed.name == *name);
        let valid = theirs.filter(|signed| signed.until > now && signed.revoked.is_none());
        let revoke = |signed: &mut Signed| {
            signed.revoked = Some(now);
            signed.role
        };
        valid.map(revoke).collect()
    }

    /// The list of what was taken back and has not ended, signed, in PEM.
    pub(crate) fn list(&self, issuer: &Issuer<'static, KeyPair>) -> Result<String, rcgen::Error> {
        let now = SystemTime::now();
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
            crl_number: seconds(now).into(),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(issuer)?.pem()
    }
}

/// The list in a member's directory, if there is one.
pub(crate) fn read(
    directory: &Path,
) -> Result<Option<CertificateRevocationListDer<'static>>, IdentityError> {
    let path = directory.join(REVOKED);
    match CertificateRevocationListDer::from_pem_file(&path) {
        Ok(list) => Ok(Some(list)),
        Err(pem::Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(pem::Error::Io(error)) => Err(IdentityError::File { path, error }),
        Err(_) => {
            let reason = "it is no list of revoked certificates".into();
            Err(IdentityError::Content { path, reason })
        }
    }
}

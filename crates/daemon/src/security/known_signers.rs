//! The certificates of a rack's signers, in the file `signers.pem`.
//!
//! The authority keeps them beside its list of revoked certificates, and they are distributed as that
//! is. Processes of jobs verify them before packages come with them, which saves each process most of the
//! time that the first package of a signer takes. Nothing depends on the file being right or complete:
//! processes ignore what is not the certificate of a signer, and verify others when they come.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use gossamer_job::MAX_KNOWN_SIGNERS;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The file in the directory of a daemon, and in that of the authority.
pub(crate) const SIGNERS: &str = "signers.pem";
/// The most bytes that are read of it: of some 16 KiB for each certificate, which has 8 at most.
const LARGEST: u64 = 16 * 1024 * MAX_KNOWN_SIGNERS as u64;

/// The certificates in `directory`, in DER; none if there is no such file.
///
/// # Errors
/// The error of the system, or the file is too large.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    let file = match File::open(directory.join(SIGNERS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut pem = String::new();
    file.take(LARGEST + 1).read_to_string(&mut pem)?;
    if pem.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("{SIGNERS} is larger than {LARGEST} bytes")));
    }
    let mut all: Vec<_> = in_pem(&pem).map(|(_, certificate)| certificate.to_vec()).collect();
    // The newest are last.
    Ok(all.split_off(all.len().saturating_sub(MAX_KNOWN_SIGNERS)))
}

/// The certificates of a file, each as it is there and in DER.
pub(crate) fn in_pem(file: &str) -> impl Iterator<Item = (&str, CertificateDer<'static>)> {
    file.split_inclusive("-----END CERTIFICATE-----\n").filter_map(|pem| {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        Some((pem, certificate))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::security::authority::{Authority, init_rack};
    use crate::security::member::Role;

    #[test]
    fn the_authority_keeps_the_certificates_of_its_signers() {
        let place = tempfile::tempdir().unwrap();
        init_rack(place.path(), &"lab".parse().unwrap(), None).unwrap();
        let (authority, ca) = (Authority::open(place.path()).unwrap(), place.path().join("ca"));
        let make = |name: &str, role| {
            let directory = authority.make_member(&name.parse().unwrap(), role).unwrap();
            CertificateDer::from_pem_file(directory.join("certificate.pem")).unwrap().to_vec()
        };
        assert!(read(&ca).unwrap().is_empty());
        let ann = make("ann", Role::Signer);
        make("bob", Role::Admin);
        let eve = make("eve", Role::Signer);
        assert_eq!(read(&ca).unwrap(), [ann.clone(), eve]);
        // Revoked ones go, and the cards of members to come have the rest.
        authority.revoke(&"eve".parse().unwrap()).unwrap();
        assert_eq!(read(&ca).unwrap(), std::slice::from_ref(&ann));
        let host = authority.make_member(&"a".parse().unwrap(), Role::Host).unwrap();
        assert_eq!(read(&host).unwrap(), [ann]);
    }

    #[test]
    fn a_file_of_garbage_has_no_certificates_and_a_huge_one_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        assert!(read(place.path()).unwrap().is_empty());
        fs::write(place.path().join(SIGNERS), b"-----BEGIN CERTIFICATE-----\nno").unwrap();
        assert!(read(place.path()).unwrap().is_empty());
        File::create(place.path().join(SIGNERS)).unwrap().set_len(1 << 40).unwrap();
        assert!(read(place.path()).is_err());
    }
}

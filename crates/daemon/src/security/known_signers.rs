//! The certificates of a rack's signers, in the file `signers.pem`.
//!
//! The authority keeps them beside its list of revoked certificates, and they are distributed as that
//! is. Processes of jobs verify them before packages come with them, which saves each process most of the
//! time that the first package of a signer takes. Nothing depends on the file being right or complete:
//! processes ignore what is not the certificate of a signer, and verify others when they come.

use std::io;
use std::path::Path;

use gossamer_job::MAX_KNOWN_SIGNERS;
use rustix::fs::OFlags;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::files;

/// The file in the directory of a daemon, and in that of the authority.
pub(crate) const SIGNERS: &str = "signers.pem";
/// The most bytes that are read of it: of some 16 KiB for each certificate, which has 8 at most.
const LARGEST: u64 = 16 * 1024 * MAX_KNOWN_SIGNERS as u64;

/// The certificates in `directory`, in DER; none if there is no such file.
///
/// # Errors
/// The error of the system, or the file is not a regular one, not text, or too large.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    let pem = match files::read_regular(&directory.join(SIGNERS), LARGEST, OFlags::empty()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => String::from_utf8(read?).map_err(io::Error::other)?,
    };
    let mut all: Vec<_> = in_pem(&pem).map(|(_, certificate)| certificate.to_vec()).collect();
    // The newest are last.
    Ok(all.split_off(all.len().saturating_sub(MAX_KNOWN_SIGNERS)))
}

/// The certificates of a file, each as it is there, without what ends its last line, and in DER.
pub(crate) fn in_pem(file: &str) -> impl Iterator<Item = (&str, CertificateDer<'static>)> {
    // Without the end of the line, which is different if the file was edited on another system.
    file.split_inclusive("-----END CERTIFICATE-----").filter_map(|pem| {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        Some((pem.trim_start(), certificate))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use daemon_protocol::Role;

    use super::*;
    use crate::security::authority::{Authority, init_rack};

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
    fn lines_may_end_as_on_other_systems_and_the_last_one_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        init_rack(place.path(), &"lab".parse().unwrap(), None).unwrap();
        let (authority, ca) = (Authority::open(place.path()).unwrap(), place.path().join("ca"));
        let make = |name: &str| authority.make_member(&name.parse().unwrap(), Role::Signer);
        make("ann").unwrap();
        make("eve").unwrap();
        let (file, both) = (ca.join(SIGNERS), read(&ca).unwrap());
        assert_eq!(both.len(), 2);
        let pem = fs::read_to_string(&file).unwrap();
        fs::write(&file, pem.replace('\n', "\r\n")).unwrap();
        assert_eq!(read(&ca).unwrap(), both);
        // The authority adds to such a file.
        fs::write(&file, pem.replace('\n', "\r\n").trim_end()).unwrap();
        assert_eq!(read(&ca).unwrap(), both);
        make("mia").unwrap();
        let all = read(&ca).unwrap();
        assert_eq!((&all[..2], all.len()), (&both[..], 3));
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

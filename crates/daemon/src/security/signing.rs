//! Signing packages of code, as a member of the rack with the role `signer`. The crate `gossamer-job`
//! verifies what this makes.

use daemon_protocol::{Name, Role};
use gossamer_job::{JobId, SignatureError, Signers, SignersError, SigningAuthority};
use jam_format::{Algorithm, Package, PackageError, Proof, Signature, sign_package};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use thiserror::Error;

use crate::security::identity::Identity;

/// A package cannot be signed.
#[derive(Debug, Error)]
pub enum SigningError {
    /// The identity has another role.
    #[error(
        "the role of {name} is {role}: only a signer may sign packages (`gossamer rack sign --role \
         signer` makes one)"
    )]
    Role {
        /// The member.
        name: Name,
        /// Its role.
        role: Role,
    },
    /// The bytes are not a package.
    #[error("not a package of jams")]
    Package(#[from] PackageError),
    /// The key cannot be used.
    #[error("cannot sign with the key of this identity")]
    Key(#[source] rustls::Error),
    /// Its table is too long for the proof that travels with its jams.
    #[error("it has too many elements to be signed: split the package")]
    TooMany,
    /// The key is of another kind.
    #[error("the key of this identity is neither of Ed25519 nor of ECDSA on P-256")]
    Algorithm,
}

/// The package in `bytes`, signed by `identity` in place of an earlier signature: for `job` only, or
/// for every job of the rack.
///
/// # Errors
/// [`SigningError`].
pub fn sign(
    identity: &Identity,
    bytes: &[u8],
    job: Option<JobId>,
) -> Result<Vec<u8>, SigningError> {
    let (name, role) = (identity.member.name.clone(), identity.member.role);
    if role != Role::Signer {
        return Err(SigningError::Role { name, role });
    }
    let package = Package::parse(bytes)?;
    let job = job.map(|job| job.0);
    let key = any_supported_type(&identity.key).map_err(SigningError::Key)?;
    let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519];
    let signer = key.choose_scheme(&schemes).ok_or(SigningError::Algorithm)?;
    let algorithm = match signer.scheme() {
        SignatureScheme::ED25519 => Algorithm::Ed25519,
        _ => Algorithm::EcdsaP256,
    };
    let signature = signer.sign(&package.signed_message(job)).map_err(SigningError::Key)?;
    let block =
        Signature { algorithm, job, certificate: &identity.certificate, signature: &signature };
    let signed = sign_package(&package, &block.encode()?)?;
    match Package::parse(&signed)?.proof() {
        Some(_) => Ok(signed),
        None => Err(SigningError::TooMany),
    }
}

/// A package has no signature of a signer of the rack.
#[derive(Debug, Error)]
pub enum NotVerified {
    /// It has none.
    #[error("the package is not signed")]
    Unsigned,
    /// The authority of the rack cannot be used.
    #[error("cannot verify signatures with the certificates of this identity")]
    Authority(#[from] SignersError),
    /// The bytes are not a package.
    #[error("not a package of jams")]
    Package(#[from] PackageError),
    /// It was signed by someone else, or changed.
    #[error("no signer of the rack has signed this package")]
    Signature(#[from] SignatureError),
}

/// Verifies that a signer of the rack of `identity` has signed `package`, whichever job it is for.
///
/// # Errors
/// [`NotVerified`].
pub fn verify(identity: &Identity, package: &Package<'_>) -> Result<(), NotVerified> {
    let revoked = identity.revoked.as_ref().map(|list| list.to_vec()).unwrap_or_default();
    let authority = SigningAuthority { ca: identity.ca.to_vec(), revoked, signers: Vec::new() };
    let signers = Signers::new(identity.member.rack.as_str(), None, &authority)?;
    package.signature()?.ok_or(NotVerified::Unsigned)?;
    let proof = package.proof().ok_or(NotVerified::Unsigned)?;
    signers.verify(&Proof::parse(&proof)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use jam_format::encode_package;
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

    use super::*;
    use crate::security::authority::{self, Authority, good_for, init_rack};
    use crate::security::identity;

    /// An identity whose key was made when keys were of P-256.
    #[test]
    fn a_key_of_p256_signs_as_before() {
        let place = tempfile::tempdir().unwrap();
        let admin = init_rack(place.path(), &"lab".parse().unwrap(), None).unwrap();
        let authority = Authority::open(place.path()).unwrap();
        let old = tempfile::tempdir().unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let key_file = old.path().join(identity::KEY);
        fs::write(&key_file, key.serialize_pem()).unwrap();
        fs::set_permissions(&key_file, Permissions::from_mode(0o600)).unwrap();
        let request = authority::request(old.path()).unwrap();
        let name = "ann".parse().unwrap();
        let card = authority.sign(&request, &name, Role::Signer, good_for(1)).unwrap();
        authority::accept(old.path(), &card).unwrap();
        let ann = Identity::load(old.path()).unwrap();
        let signed = sign(&ann, &encode_package("none", &[]).unwrap(), None).unwrap();
        let package = Package::parse(&signed).unwrap();
        assert_eq!(package.signature().unwrap().unwrap().algorithm, Algorithm::EcdsaP256);
        verify(&admin, &package).unwrap();
    }

    #[test]
    fn what_a_signer_signs_is_verified() {
        let place = tempfile::tempdir().unwrap();
        let admin = init_rack(place.path(), &"lab".parse().unwrap(), None).unwrap();
        let authority = Authority::open(place.path()).unwrap();
        let ann = authority.make_member(&"ann".parse().unwrap(), Role::Signer).unwrap();
        let ann = Identity::load(&ann).unwrap();
        let package = encode_package("none", &[]).unwrap();
        let signed = sign(&ann, &package, None).unwrap();
        let again = sign(&ann, &signed, Some(JobId(7))).unwrap();
        let ca = SigningAuthority { ca: admin.ca.to_vec(), ..SigningAuthority::default() };
        let signers = Signers::new("lab", Some(JobId(7)), &ca).unwrap();
        for signed in [signed, again] {
            let proof = Package::parse(&signed).unwrap().proof().unwrap();
            let signer = signers.verify(&Proof::parse(&proof).unwrap()).unwrap();
            assert_eq!(signer.name, "ann");
            verify(&admin, &Package::parse(&signed).unwrap()).unwrap();
        }
        let unsigned = verify(&admin, &Package::parse(&package).unwrap()).unwrap_err();
        assert!(matches!(unsigned, NotVerified::Unsigned), "{unsigned}");
        let place = tempfile::tempdir().unwrap();
        let other = init_rack(place.path(), &"lab".parse().unwrap(), None).unwrap();
        let signed = sign(&ann, &package, None).unwrap();
        let of_other = verify(&other, &Package::parse(&signed).unwrap()).unwrap_err();
        assert!(matches!(of_other, NotVerified::Signature(_)), "{of_other}");
        let error = sign(&admin, &package, None).unwrap_err();
        assert!(matches!(error, SigningError::Role { role: Role::Admin, .. }), "{error}");
        assert!(matches!(sign(&ann, b"JAMP", None), Err(SigningError::Package(_))));
    }
}

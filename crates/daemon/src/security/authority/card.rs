//! [`Card`]: a signed certificate on its way to a new member. [`request`] makes the member's key and a
//! request to sign; [`accept`] stores the signed answer beside the key.

use std::fs;
use std::path::Path;

use daemon_protocol::Role;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::security::authority::error::{
    AuthorityError, get, in_file, make_directory, put, put_toml,
};
use crate::security::authority::new_key;
use crate::security::identity::{self, Hosts};
use crate::security::known_signers::SIGNERS;
use crate::security::member::Member;
use crate::security::revocation::{self, REVOKED};
use crate::security::tls;

/// The answer to a request, which a new member stores beside its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The new member's certificate, in PEM.
    pub certificate: String,
    /// The authority's certificate, in PEM.
    pub ca: String,
    /// The authority's signed list of revoked certificates, in PEM, if any are revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// The certificates of the rack's signers, in PEM, if it has any; for hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signers: Option<String>,
    /// Where the rack's daemons listen.
    #[serde(flatten)]
    pub hosts: Hosts,
}

/// Makes a key in `directory`, unless there is one, and the request to sign it, in PEM.
///
/// # Errors
/// [`AuthorityError`], if the key cannot be made, read or written.
pub fn request(directory: &Path) -> Result<String, AuthorityError> {
    make_directory(directory)?;
    let path = directory.join(identity::KEY);
    let key = if path.exists() {
        files::only_for_owner(&path).map_err(in_file(&path))?;
        KeyPair::from_pem(&get(&path)?)?
    } else {
        let key = new_key()?;
        put(&path, key.serialize_pem().as_bytes(), 0o600)?;
        key
    };
    Ok(CertificateParams::default().serialize_request(&key)?.pem()?)
}

/// Stores a card beside the key that it was made for. Keeps the existing list of revoked certificates
/// if that is newer than the card's, and removes it if it is of another authority.
///
/// # Errors
/// [`AuthorityError`], if it is for another key, or cannot be written.
pub fn accept(directory: &Path, card: &Card) -> Result<Member, AuthorityError> {
    let certificate = CertificateDer::from_pem_slice(card.certificate.as_bytes())
        .map_err(|_| AuthorityError::Card("its certificate is not PEM".into()))?;
    let member = Member::of(&certificate)?;
    let key_file = directory.join(identity::KEY);
    let key = PrivateKeyDer::from_pem_slice(get(&key_file)?.as_bytes());
    if !key.is_ok_and(|key| tls::belong_together(&certificate, key)) {
        return Err(AuthorityError::OtherKey(key_file));
    }
    put(&directory.join(identity::CERTIFICATE), card.certificate.as_bytes(), 0o644)?;
    put(&directory.join(identity::CA), card.ca.as_bytes(), 0o644)?;
    let revoked = directory.join(REVOKED);
    match &card.revoked {
        Some(list) if !revocation::has_newer(directory, list, &card.ca) => {
            put(&revoked, list.as_bytes(), 0o644)?;
        }
        // Beside this card, no daemon would start with it.
        None if revocation::is_foreign(directory, &card.ca) => {
            fs::remove_file(&revoked).map_err(in_file(&revoked))?;
        }
        _ => {}
    }
    if let (Role::Host, Some(signers)) = (member.role, &card.signers) {
        put(&directory.join(SIGNERS), signers.as_bytes(), 0o644)?;
    }
    if matches!(member.role, Role::Admin | Role::Viewer) {
        put_toml(&directory.join(identity::HOSTS), &card.hosts)?;
    }
    Ok(member)
}

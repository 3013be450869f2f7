//! [`Authority`]: signs the certificates of a rack's hosts and users.
//!
//! A private key is made where it is used and stays there. The new member makes a key and a request
//! ([`request`]); the holder of the authority decides name, role and validity, and signs
//! ([`Authority::sign`]); the new member stores the answer, a *card*, beside its key ([`accept`]).
//! Request and card are no secrets. The card must come over an authenticated channel, such as ssh,
//! because it determines which authority the new member will trust.

mod card;
mod error;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use daemon_protocol::{Name, Role};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519, SanType,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::files;
pub use crate::security::authority::card::{Card, accept, request};
pub use crate::security::authority::error::AuthorityError;
use crate::security::authority::error::{get, in_file, make_directory, put, put_toml};
use crate::security::identity::{self, Hosts, Identity, PORT};
use crate::security::known_signers::{self, SIGNERS};
use crate::security::member::Member;
use crate::security::revocation::{self, CERTIFICATES, Certificates, REVOKED};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the authority's certificate is valid: longer than a rack exists.
const AUTHORITY_LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);
/// How much the clocks of a rack may differ.
const SKEW: Duration = Duration::from_secs(60 * 60);
const RACK: &str = "rack.toml";
const LOCK: &str = "lock";
/// The authority's directory in that of the rack, and its name until it is complete.
const CA: &str = "ca";
const UNFINISHED: &str = "ca.part";

/// Signs certificates of a rack. One process at a time can open it; others wait.
pub struct Authority {
    rack: Name,
    directory: PathBuf,
    place: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    /// Locked as long as it is open.
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct RackFile {
    rack: Name,
}

impl Authority {
    /// Makes the authority of a new rack. [`settle`](Self::settle) it when the rest of the rack is made;
    /// if the process is interrupted before that, it can start again.
    fn create(directory: &Path, rack: &Name) -> Result<Self, AuthorityError> {
        if directory.join(CA).exists() {
            return Err(AuthorityError::Exists(directory.to_owned()));
        }
        let place = directory.join(UNFINISHED);
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(in_file(&place)(error).into());
            }
            _ => make_directory(&place)?,
        }
        let key = new_key()?;
        let mut params = params(&format!("rack {rack}"), SystemTime::now() + AUTHORITY_LIFE)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        put(&place.join(identity::KEY), key.serialize_pem().as_bytes(), 0o600)?;
        put(&place.join(identity::CERTIFICATE), certificate.as_bytes(), 0o644)?;
        put_toml(&place.join(RACK), &RackFile { rack: rack.clone() })?;
        Self::load(directory, place)
    }

    /// Gives a new authority its name.
    fn settle(self) -> Result<(), AuthorityError> {
        let place = self.directory.join(CA);
        Ok(fs::rename(&self.place, &place).map_err(in_file(&place))?)
    }

    /// The authority in `directory`/ca, when no other process uses it.
    ///
    /// # Errors
    /// [`AuthorityError`], if it does not exist.
    pub fn open(directory: &Path) -> Result<Self, AuthorityError> {
        Self::load(directory, directory.join(CA))
    }

    fn load(directory: &Path, place: PathBuf) -> Result<Self, AuthorityError> {
        let key_file = place.join(identity::KEY);
        files::only_for_owner(&key_file).map_err(in_file(&key_file))?;
        let lock = lock(&place.join(LOCK)).map_err(in_file(&place.join(LOCK)))?;
        let key = KeyPair::from_pem(&get(&key_file)?)?;
        let certificate = get(&place.join(identity::CERTIFICATE))?;
        let RackFile { rack } = identity::read_toml(&place.join(RACK))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key)?;
        let directory = directory.to_owned();
        Ok(Self { rack, directory, place, certificate, issuer, _lock: lock })
    }

    /// Signs a request. Only its key is used: name and role of the holder are given here.
    ///
    /// # Errors
    /// [`AuthorityError`], if the request is malformed, or was not made with the key that it names.
    pub fn sign(
        &self,
        request: &str,
        name: &Name,
        role: Role,
        until: SystemTime,
    ) -> Result<Card, AuthorityError> {
        let request = CertificateSigningRequestParams::from_pem(request)?;
        let member = Member { rack: self.rack.clone(), role, name: name.clone() };
        let mut params = params(name.as_str(), until)?;
        params.subject_alt_names = vec![
            SanType::DnsName(name.as_str().try_into()?),
            SanType::URI(member.uri().as_str().try_into()?),
        ];
        params.extended_key_usages = vec![match role {
            Role::Host => ExtendedKeyUsagePurpose::ServerAuth,
            Role::Admin | Role::Viewer => ExtendedKeyUsagePurpose::ClientAuth,
            // So no daemon accepts its connections.
            Role::Signer => ExtendedKeyUsagePurpose::CodeSigning,
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let mut certificates = self.certificates()?;
        let number = certificates.note(name, role, until);
        params.serial_number = Some(number.map_err(in_file(&self.place(CERTIFICATES)))?);
        // Noted before it exists, so that no certificate is unknown.
        put_toml(&self.place(CERTIFICATES), &certificates)?;
        let certificate = params.signed_by(&request.public_key, &self.issuer)?.pem();
        if role == Role::Signer {
            self.keep_signers(&certificates, Some(&certificate))?;
        }
        let text = |name: &str| {
            let file = self.place(name);
            file.exists().then(|| get(&file)).transpose()
        };
        let revoked = text(REVOKED)?;
        let signers = if role == Role::Host { text(SIGNERS)? } else { None };
        Ok(Card {
            certificate,
            ca: self.certificate.clone(),
            revoked,
            signers,
            hosts: self.hosts()?,
        })
    }

    /// Keeps the certificates of signers that are valid, and a new one, in PEM.
    fn keep_signers(
        &self,
        certificates: &Certificates,
        new: Option<&str>,
    ) -> Result<(), AuthorityError> {
        let file = self.place(SIGNERS);
        let before = if file.exists() { get(&file)? } else { String::new() };
        let kept = known_signers::in_pem(&before);
        let kept = kept.filter(|(_, certificate)| certificates.has_valid(certificate));
        let kept = kept.map(|(pem, _)| pem).chain(new.map(str::trim_end));
        put(&file, kept.map(|pem| format!("{pem}\n")).collect::<String>().as_bytes(), 0o644)
    }

    /// Revokes every certificate of `name` that has not expired, and removes its daemon from the list of
    /// hosts. Returns the path of the list of revoked certificates, and how many were revoked now. The
    /// list is in force wherever it is stored beside an identity, and at once for the member `admin`
    /// of this directory. A call that was interrupted is completed by another one.
    ///
    /// # Errors
    /// [`AuthorityError`], if it has none, or the list cannot be written.
    pub fn revoke(&self, name: &Name) -> Result<(PathBuf, usize), AuthorityError> {
        let mut certificates = self.certificates()?;
        // Also those that were revoked before: the files that follow may not have been written then.
        let (roles, count) = certificates.revoke(name);
        if roles.is_empty() {
            return Err(AuthorityError::NotSigned(name.clone()));
        }
        let last = revocation::known(&self.place, &self.certificate);
        let list = certificates.list(&self.issuer, last.as_ref())?;
        // Noted first, so that no later list leaves them out, whatever interrupts this call.
        put_toml(&self.place(CERTIFICATES), &certificates)?;
        put(&self.place(REVOKED), list.as_bytes(), 0o644)?;
        if roles.contains(&Role::Signer) {
            self.keep_signers(&certificates, None)?;
        }
        // The files of `admin` are last: its directory may have been moved away.
        put(&self.directory.join("admin").join(REVOKED), list.as_bytes(), 0o644)?;
        if roles.contains(&Role::Host) {
            let mut hosts = self.hosts()?;
            hosts.hosts.remove(name);
            put_toml(&self.hosts_file(), &hosts)?;
        }
        Ok((self.place(REVOKED), count))
    }

    /// The signed certificates.
    fn certificates(&self) -> Result<Certificates, AuthorityError> {
        let file = self.place(CERTIFICATES);
        Ok(if file.exists() { identity::read_toml(&file)? } else { Certificates::default() })
    }

    fn place(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Where the rack's daemons listen.
    ///
    /// # Errors
    /// [`AuthorityError`], if the list cannot be read.
    pub fn hosts(&self) -> Result<Hosts, AuthorityError> {
        let path = self.hosts_file();
        Ok(if path.exists() { identity::read_toml(&path)? } else { Hosts::default() })
    }

    /// Notes where a host's daemon listens (at [`PORT`] if `address` names none), for future cards and
    /// for the member `admin` of this directory. Returns the address noted before, if it differs.
    ///
    /// # Errors
    /// [`AuthorityError`], if the list cannot be written.
    pub fn note_host(&self, name: &Name, address: &str) -> Result<Option<String>, AuthorityError> {
        let (mut hosts, address) = (self.hosts()?, with_port(address));
        let before = hosts.hosts.insert(name.clone(), address.clone());
        put_toml(&self.hosts_file(), &hosts)?;
        Ok(before.filter(|before| *before != address))
    }

    fn hosts_file(&self) -> PathBuf {
        self.directory.join("admin").join(identity::HOSTS)
    }

    /// Makes the identity of a member on this machine, in `directory`/`name`.
    ///
    /// # Errors
    /// [`AuthorityError`], if it cannot be made.
    pub fn make_member(&self, name: &Name, role: Role) -> Result<PathBuf, AuthorityError> {
        let place = self.directory.join(name.as_str());
        let request = request(&place)?;
        accept(&place, &self.sign(&request, name, role, good_for(365))?)?;
        Ok(place)
    }
}

/// When a certificate expires that is made now and valid for `days` days.
pub fn good_for(days: u32) -> SystemTime {
    SystemTime::now() + DAY * days
}

/// A new key, of the authority or a member: Ed25519, whose signatures processes verify in two thirds of the
/// time of ECDSA on P-256. Keys of P-256, which racks had before, can still be used.
fn new_key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ED25519)
}

/// The parameters that all certificates share.
pub(crate) fn params(name: &str, until: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (SystemTime::now() - SKEW).into();
    params.not_after = until.into();
    Ok(params)
}

/// An address with its port, or with [`PORT`] if it has none.
fn with_port(address: &str) -> String {
    if address.parse::<Ipv6Addr>().is_ok() {
        return format!("[{address}]:{PORT}");
    }
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { address.to_owned() } else { format!("{address}:{PORT}") }
}

/// Locks a file for as long as it is open; waits for other holders.
fn lock(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    while let Err(error) = flock(&file, FlockOperation::LockExclusive) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(file)
}

/// Makes a rack: its authority, the identity of an administrator, and that of its first host if
/// one is given, with the address of its daemon. Without one, all hosts join.
///
/// # Errors
/// [`AuthorityError`], if there is one already, or it cannot be written.
pub fn init_rack(
    directory: &Path,
    rack: &Name,
    first: Option<(&Name, &str)>,
) -> Result<Identity, AuthorityError> {
    let authority = Authority::create(directory, rack)?;
    let admin = "admin".parse().expect("it is a name");
    make_directory(&directory.join("admin"))?;
    // An interrupted attempt may have noted another host.
    put_toml(&authority.hosts_file(), &Hosts::default())?;
    if let Some((host, address)) = first {
        authority.note_host(host, address)?;
        authority.make_member(host, Role::Host)?;
    }
    let place = authority.make_member(&admin, Role::Admin)?;
    let identity = Identity::load(&place)?;
    authority.settle()?;
    Ok(identity)
}

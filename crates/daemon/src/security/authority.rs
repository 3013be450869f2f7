//! The authority of a rack: who signs certificates, and how a host or a person gets one.
//!
//! A private key is made where it is used and stays there. The newcomer makes a key and a request
//! ([`request`]); whoever holds the authority decides name, role and time and signs
//! ([`Authority::sign`]); the newcomer puts the answer, a *card*, beside its key ([`accept`]).
//! Request and card are no secrets. The card must come by a way that nobody can tamper with, such
//! as ssh, because it says which authority the newcomer will trust.

use crate::{
    files,
    host::config::PORT,
    security::{
        identity::{self, Hosts, Identity, IdentityError, Member, Name, Role},
        revocation::{self, CERTIFICATES, Certificates, REVOKED},
        tls,
    },
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustix::fs::{FlockOperation, flock};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io,
    net::Ipv6Addr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use thiserror::Error;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the authority itself is good for: longer than a rack lasts.
const AUTHORITY_LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);
/// By how much the clocks of a rack may differ.
const SKEW: Duration = Duration::from_secs(60 * 60);
const RACK: &str = "rack.toml";
const LOCK: &str = "lock";
/// Where the authority is kept, in the directory of the rack; and until all of that is made.
const CA: &str = "ca";
const UNFINISHED: &str = "ca.part";

/// Why no certificate was made.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// There is a rack already.
    #[error("{} holds a rack already; choose another directory", .0.display())]
    Exists(PathBuf),
    /// A certificate could not be made or read.
    #[error("cannot make the certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The card does not fit the key that was made for it.
    #[error(
        "the card is for another key than the one in {}; sign the request that lies there",
        .0.display()
    )]
    OtherKey(PathBuf),
    /// There is nothing to take back.
    #[error("no certificate of {0} is valid that this authority has signed")]
    NotSigned(Name),
    /// The card holds something else.
    #[error("this is no card: {0}")]
    Card(String),
}

/// Who can sign certificates of a rack. Only one at a time: whoever opens it waits for the others.
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

/// The answer to a request: what a newcomer puts beside its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The newcomer's certificate, in PEM.
    pub certificate: String,
    /// The authority's certificate, in PEM.
    pub ca: String,
    /// The certificates that are revoked, if any are, as a list that the authority has signed, in
    /// PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// Where the rack's daemons listen.
    #[serde(flatten)]
    pub hosts: Hosts,
}

impl Authority {
    /// Makes the authority of a new rack, which is to be [settled](Self::settle) when all else is
    /// made: whoever is interrupted before can begin again.
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
        let key = KeyPair::generate()?;
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

    /// The authority in `directory`/ca, when nobody else uses it.
    ///
    /// # Errors
    /// [`AuthorityError`], if there is none.
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

    /// Signs what a newcomer asks for. Of the request only the key is used: what its holder is
    /// called and may do is decided here.
    ///
    /// # Errors
    /// [`AuthorityError`], if the request is none, or was not made with the key that it names.
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
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let mut certificates = self.certificates()?;
        let number = certificates.note(name, role, until);
        params.serial_number = Some(number.map_err(in_file(&self.place(CERTIFICATES)))?);
        // Before there is a certificate that nobody knows of.
        put_toml(&self.place(CERTIFICATES), &certificates)?;
        let certificate = params.signed_by(&request.public_key, &self.issuer)?.pem();
        let list = self.place(REVOKED);
        let revoked = list.exists().then(|| get(&list)).transpose()?;
        Ok(Card { certificate, ca: self.certificate.clone(), revoked, hosts: self.hosts()? })
    }

    /// Takes back every certificate of `name` that has not ended, and takes its daemon off the list
    /// of hosts; where the list of what is revoked is now, and how many certificates that were. It
    /// counts wherever it is put beside an identity, and at once for the member `admin` of this
    /// directory.
    ///
    /// # Errors
    /// [`AuthorityError`], if there is none, or the list cannot be written.
    pub fn revoke(&self, name: &Name) -> Result<(PathBuf, usize), AuthorityError> {
        let mut certificates = self.certificates()?;
        let revoked = certificates.revoke(name);
        if revoked.is_empty() {
            return Err(AuthorityError::NotSigned(name.clone()));
        }
        let last = revocation::known(&self.place, &self.certificate);
        let list = certificates.list(&self.issuer, last.as_ref())?;
        put_toml(&self.place(CERTIFICATES), &certificates)?;
        for file in [self.place(REVOKED), self.directory.join("admin").join(REVOKED)] {
            put(&file, list.as_bytes(), 0o644)?;
        }
        if revoked.contains(&Role::Host) {
            let mut hosts = self.hosts()?;
            hosts.hosts.remove(name);
            put_toml(&self.hosts_file(), &hosts)?;
        }
        Ok((self.place(REVOKED), revoked.len()))
    }

    /// What was signed.
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

    /// Notes where a host's daemon listens (at [`PORT`] if `address` names none), for cards to
    /// come, and for the member `admin` of this directory, whose list this is. Returns where else
    /// it had listened, if that was noted.
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

/// When a certificate ends that is made now and good for `days` days.
pub fn good_for(days: u32) -> SystemTime {
    SystemTime::now() + DAY * days
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
        let key = KeyPair::generate()?;
        put(&path, key.serialize_pem().as_bytes(), 0o600)?;
        key
    };
    Ok(CertificateParams::default().serialize_request(&key)?.pem()?)
}

/// Puts a card beside the key that it was made for. A list of revoked certificates that is there
/// stays if it is newer than the card's.
///
/// # Errors
/// [`AuthorityError`], if it is for another key, or cannot be written.
pub fn accept(directory: &Path, card: &Card) -> Result<Member, AuthorityError> {
    let certificate = CertificateDer::from_pem_slice(card.certificate.as_bytes())
        .map_err(|_| AuthorityError::Card("its certificate is not as PEM".into()))?;
    let member = Member::of(&certificate)?;
    let key_file = directory.join(identity::KEY);
    let key = PrivateKeyDer::from_pem_slice(get(&key_file)?.as_bytes());
    if !key.is_ok_and(|key| tls::belong_together(&certificate, key)) {
        return Err(AuthorityError::OtherKey(key_file));
    }
    put(&directory.join(identity::CERTIFICATE), card.certificate.as_bytes(), 0o644)?;
    put(&directory.join(identity::CA), card.ca.as_bytes(), 0o644)?;
    if let Some(list) = &card.revoked
        && !revocation::has_newer(directory, list, &card.ca)
    {
        put(&directory.join(REVOKED), list.as_bytes(), 0o644)?;
    }
    if member.role != Role::Host {
        put_toml(&directory.join(identity::HOSTS), &card.hosts)?;
    }
    Ok(member)
}

/// What all certificates have in common.
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

/// Locks a file, when nobody else has, for as long as it is open.
fn lock(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    while let Err(error) = flock(&file, FlockOperation::LockExclusive) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(file)
}

fn in_file(path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |error| IdentityError::File { path, error }
}

fn make_directory(path: &Path) -> Result<(), AuthorityError> {
    Ok(files::private_directory(path).map_err(in_file(path))?)
}

fn put(path: &Path, content: &[u8], mode: u32) -> Result<(), AuthorityError> {
    Ok(files::write(path, content, mode).map_err(in_file(path))?)
}

fn put_toml<T: Serialize>(path: &Path, value: &T) -> Result<(), AuthorityError> {
    let text = toml::to_string(value).expect("names and addresses can always be written");
    put(path, text.as_bytes(), 0o644)
}

fn get(path: &Path) -> Result<String, AuthorityError> {
    Ok(fs::read_to_string(path).map_err(in_file(path))?)
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
    let admin = "admin".parse()?;
    make_directory(&directory.join("admin"))?;
    // One that was interrupted may have noted another host.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_rack_is_made_once() {
        let place = tempfile::tempdir().unwrap();
        let admin = init_rack(place.path(), &name("r"), Some((&name("a"), "127.0.0.1:1"))).unwrap();
        assert_eq!(
            admin.member,
            Member { rack: name("r"), role: Role::Admin, name: name("admin") }
        );
        assert_eq!(admin.hosts.hosts[&name("a")], "127.0.0.1:1");
        let host = Identity::load(&place.path().join("a")).unwrap();
        assert_eq!(host.member.role, Role::Host);
        let again =
            init_rack(place.path(), &name("r"), Some((&name("a"), "127.0.0.1:1"))).unwrap_err();
        assert!(matches!(again, AuthorityError::Exists(_)));
    }

    #[test]
    fn a_rack_that_was_not_finished_is_made_anew() {
        let place = tempfile::tempdir().unwrap();
        let authority = Authority::create(place.path(), &name("r")).unwrap();
        authority.make_member(&name("admin"), Role::Admin).unwrap();
        authority.note_host(&name("a"), "node1").unwrap();
        drop(authority);
        let admin = init_rack(place.path(), &name("r"), Some((&name("b"), "node2"))).unwrap();
        assert_eq!(admin.hosts.hosts.keys().collect::<Vec<_>>(), [&name("b")]);
        assert!(!place.path().join(UNFINISHED).exists());
        Authority::open(place.path()).unwrap().revoke(&name("b")).unwrap();
    }

    #[test]
    fn a_rack_without_hosts_gets_them_later() {
        let place = tempfile::tempdir().unwrap();
        let admin = init_rack(place.path(), &name("r"), None).unwrap();
        assert!(admin.hosts.hosts.is_empty());
        let authority = Authority::open(place.path()).unwrap();
        assert_eq!(authority.note_host(&name("b"), "10.0.0.2").unwrap(), None);
        assert_eq!(authority.note_host(&name("b"), "10.0.0.2:7474").unwrap(), None);
        let admin = Identity::load(&place.path().join("admin")).unwrap();
        assert_eq!(admin.hosts.hosts[&name("b")], "10.0.0.2:7474");
    }

    #[test]
    fn a_host_without_a_port_has_the_usual_one() {
        for (address, expected) in [
            ("node1", "node1:7474"),
            ("node1:1", "node1:1"),
            ("fd00::1", "[fd00::1]:7474"),
            ("[fd00::1]", "[fd00::1]:7474"),
            ("[fd00::1]:1", "[fd00::1]:1"),
        ] {
            assert_eq!(with_port(address), expected);
        }
        let place = tempfile::tempdir().unwrap();
        let admin = init_rack(place.path(), &name("r"), Some((&name("a"), "node1"))).unwrap();
        assert_eq!(admin.hosts.hosts[&name("a")], "node1:7474");
    }

    #[test]
    fn a_newcomer_joins_without_giving_its_key_away() {
        let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let authority = Authority::create(place.path(), &name("r")).unwrap();
        let asked = request(other.path()).unwrap();
        assert!(!asked.contains("PRIVATE"));
        let card = authority.sign(&asked, &name("b"), Role::Viewer, good_for(1)).unwrap();
        let text = toml::to_string(&card).unwrap();
        let member = accept(other.path(), &toml::from_str(&text).unwrap()).unwrap();
        assert_eq!((member.name, member.role), (name("b"), Role::Viewer));
        assert_eq!(Identity::load(other.path()).unwrap().member.rack, name("r"));
    }

    #[test]
    fn what_was_revoked_is_on_the_list_of_every_card_to_come() {
        let place = tempfile::tempdir().unwrap();
        init_rack(place.path(), &name("r"), Some((&name("a"), "127.0.0.1:1"))).unwrap();
        let authority = Authority::open(place.path()).unwrap();
        assert!(matches!(authority.revoke(&name("b")), Err(AuthorityError::NotSigned(_))));
        let asked = request(&place.path().join("b")).unwrap();
        let sign = || authority.sign(&asked, &name("b"), Role::Viewer, good_for(1)).unwrap();
        let (first, second) = (sign(), sign());
        assert_ne!(first.certificate, second.certificate, "each has a number of its own");
        assert_eq!(first.revoked, None);
        let (list, count) = authority.revoke(&name("b")).unwrap();
        assert_eq!((list, count), (place.path().join("ca/revoked.pem"), 2));
        assert!(matches!(authority.revoke(&name("b")), Err(AuthorityError::NotSigned(_))));
        assert!(sign().revoked.is_some(), "and it may be signed anew");
        assert!(Identity::load(&place.path().join("admin")).unwrap().revoked.is_some());
        authority.revoke(&name("a")).unwrap();
        assert!(authority.hosts().unwrap().hosts.is_empty(), "nobody looks for it any more");
    }

    #[test]
    fn an_old_card_does_not_bring_an_old_list_back() {
        let place = tempfile::tempdir().unwrap();
        init_rack(place.path(), &name("r"), None).unwrap();
        let authority = Authority::open(place.path()).unwrap();
        let directory = place.path().join("b");
        let asked = request(&directory).unwrap();
        let sign_and_revoke = |who: &str| {
            authority.sign(&asked, &name(who), Role::Viewer, good_for(1)).unwrap();
            authority.revoke(&name(who)).unwrap();
            authority.sign(&asked, &name("b"), Role::Viewer, good_for(1)).unwrap()
        };
        let [old, new] = ["c", "d"].map(sign_and_revoke);
        let list = || fs::read_to_string(directory.join(REVOKED)).ok();
        accept(&directory, &old).unwrap();
        assert_eq!(list(), old.revoked);
        accept(&directory, &new).unwrap();
        assert_eq!(list(), new.revoked);
        accept(&directory, &old).unwrap();
        assert_eq!(list(), new.revoked, "the newer list stays");
        // What cannot be read is no reason to be without a list.
        fs::write(directory.join(REVOKED), "garbage").unwrap();
        accept(&directory, &old).unwrap();
        assert_eq!(list(), old.revoked);
    }

    #[test]
    fn what_is_signed_at_the_same_time_can_all_be_revoked() {
        let place = tempfile::tempdir().unwrap();
        init_rack(place.path(), &name("r"), None).unwrap();
        let asked = request(&place.path().join("b")).unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (place, asked) = (place.path(), &asked);
                scope.spawn(move || {
                    let authority = Authority::open(place).unwrap();
                    authority.sign(asked, &name("b"), Role::Viewer, good_for(1)).unwrap();
                    authority.note_host(&name(&format!("h{number}")), "node").unwrap();
                });
            }
        });
        let authority = Authority::open(place.path()).unwrap();
        assert_eq!(authority.hosts().unwrap().hosts.len(), 8);
        assert_eq!(authority.revoke(&name("b")).unwrap().1, 8);
    }

    #[test]
    fn a_card_for_another_key_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let authority = Authority::create(place.path(), &name("r")).unwrap();
        let (mine, theirs) = (place.path().join("mine"), place.path().join("theirs"));
        request(&mine).unwrap();
        let asked = request(&theirs).unwrap();
        let card = authority.sign(&asked, &name("b"), Role::Host, good_for(1)).unwrap();
        assert!(matches!(accept(&mine, &card), Err(AuthorityError::OtherKey(_))));
    }

    #[test]
    fn a_request_that_was_tampered_with_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let authority = Authority::create(place.path(), &name("r")).unwrap();
        let asked = request(&place.path().join("b")).unwrap();
        let middle = asked.len() / 2;
        let flipped = if asked.as_bytes()[middle] == b'A' { "B" } else { "A" };
        let mut bad = asked.clone();
        bad.replace_range(middle..=middle, flipped);
        assert!(authority.sign(&bad, &name("b"), Role::Admin, good_for(1)).is_err());
    }
}

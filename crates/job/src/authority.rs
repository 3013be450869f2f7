//! The authority of a job signs one certificate for each of its hosts, and its key is discarded
//! then. So a process can authenticate only to processes of its own job, and the keys of one job
//! are useless in another.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;
use transport_api::HostId;

use crate::id::{JobId, certificate_name};
use crate::secret::SecretPem;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long certificates are valid. Processes check them when they connect, which they do when they
/// start.
const VALIDITY: Duration = DAY.saturating_mul(30);
/// By how much the clocks of hosts may differ.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// How a private key of Ed25519 begins in the form of PKCS #8 (RFC 8410); 32 bytes follow.
const ED25519: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A certificate could not be made.
#[derive(Debug, Error)]
#[error("cannot make a certificate for the job")]
pub struct AuthorityError(#[from] rcgen::Error);

/// Signs the certificates of the hosts of one job.
#[derive(Debug)]
pub struct JobAuthority {
    job: JobId,
    ca: String,
    issuer: Issuer<'static, KeyPair>,
}

impl JobAuthority {
    /// An authority with a new random key.
    ///
    /// # Errors
    /// [`AuthorityError`], if the system has no randomness.
    pub fn random(job: JobId) -> Result<Self, AuthorityError> {
        Self::new(job, KeyPair::generate()?)
    }

    /// The authority with this private key: the same for all processes that have the key.
    ///
    /// # Errors
    /// [`AuthorityError`], if no certificate can be made.
    pub(crate) fn derived(job: JobId, seed: &[u8; 32]) -> Result<Self, AuthorityError> {
        let key = [ED25519.as_slice(), seed].concat();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        Self::new(job, KeyPair::try_from(&key)?)
    }

    fn new(job: JobId, key: KeyPair) -> Result<Self, AuthorityError> {
        let mut params = params(&format!("job {job}"))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca = params.self_signed(&key)?.pem();
        Ok(Self { job, ca, issuer: Issuer::new(params, key) })
    }

    /// The certificate of the authority, in PEM.
    pub fn ca(&self) -> String {
        self.ca.clone()
    }

    /// Makes a key for a host of the job, and its certificate, in PEM.
    ///
    /// # Errors
    /// [`AuthorityError`], if the system has no randomness.
    pub fn certificate(&self, host: HostId) -> Result<(String, SecretPem), AuthorityError> {
        let name = certificate_name(self.job, host);
        let key = KeyPair::generate()?;
        let mut params = params(&name)?;
        params.subject_alt_names = vec![SanType::DnsName(name.as_str().try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), SecretPem(key.serialize_pem())))
    }
}

/// What all certificates have in common.
fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (SystemTime::now() - SKEW).into();
    params.not_after = (SystemTime::now() + VALIDITY).into();
    Ok(params)
}

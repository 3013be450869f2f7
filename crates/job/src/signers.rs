//! [`Signers`]: who may sign packages of code for the processes of a job.
//!
//! Members of the rack with the role `signer` may. A daemon hands each process the certificate of the
//! rack's authority and its list of revoked certificates ([`SigningAuthority`]); so the process itself
//! verifies what arrives, whoever sent it. Certificates, revocation and signatures are verified by
//! `rustls-webpki`, as for TLS.
//!
//! A signer's certificate is verified once and remembered for a while, so that the signature of a
//! package is most of what verifying it costs. What cannot be verified is never remembered; the number
//! of failures in a second is limited instead, so that a peer which sends forged signatures takes a
//! few milliseconds of each second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jam_format::{Algorithm, Proof, Signature};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use webpki::ring::{ECDSA_P256_SHA256, ED25519};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
};

use crate::id::JobId;

/// The extended key usage of a signer's certificate: code signing (RFC 5280, section 4.2.1.12).
const CODE_SIGNING: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 3, 3];
/// Certificates that are remembered.
const MAX_KNOWN: usize = 16;
/// How long a certificate is remembered: it may expire meanwhile.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Failures in a second after which nothing more is verified in that second.
const MAX_FAILURES: u32 = 32;

/// The authority of a rack, as a process needs it to verify its signers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningAuthority {
    /// The certificate of the authority, in DER.
    #[serde(with = "hexadecimal")]
    pub ca: Vec<u8>,
    /// The authority's list of revoked certificates, in DER; empty if there is none.
    #[serde(with = "hexadecimal", default)]
    pub revoked: Vec<u8>,
}

/// A member of the rack who has signed a package.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signer {
    /// Its name in the rack.
    pub name: String,
    /// The number of its certificate, in hexadecimal.
    pub certificate: String,
}

/// The signers of a rack cannot be verified.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignersError {
    /// The certificate of the authority cannot be used.
    #[error("cannot use the certificate of the rack's authority: {0}")]
    Authority(String),
    /// The list of revoked certificates cannot be used.
    #[error("cannot use the rack's list of revoked certificates: {0}")]
    Revoked(String),
}

/// A signature is not one of a signer of the rack.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// The certificate is not one, or names no member of the rack.
    #[error("its certificate names no member of rack {rack}")]
    Stranger {
        /// The rack.
        rack: String,
    },
    /// The member has another role.
    #[error("it is signed by {name}, whose role is {role}: only a signer may sign packages")]
    Role {
        /// The name in the certificate.
        name: String,
        /// The role in the certificate.
        role: String,
    },
    /// The member's certificate was revoked.
    #[error("the certificate of its signer {name} was revoked")]
    Revoked {
        /// The name in the certificate.
        name: String,
    },
    /// The certificate is not one of the rack's authority, or is not valid at this time.
    #[error("the certificate of its signer {name} is invalid: {reason}")]
    Certificate {
        /// The name in the certificate.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The signature is not one of these bytes by this signer.
    #[error("its signature by {name} is forged, or the package was changed since")]
    Forged {
        /// The name in the certificate.
        name: String,
    },
    /// It is signed for another job.
    #[error("it is signed for job {signed_for} only, this is job {job}")]
    OtherJob {
        /// The job that the signature names.
        signed_for: JobId,
        /// This job.
        job: JobId,
    },
    /// Too many signatures were wrong lately.
    #[error("{MAX_FAILURES} wrong signatures arrived within a second: send it again later")]
    TooMany,
}

/// A certificate that has been verified.
struct Known {
    certificate: Vec<u8>,
    signer: Signer,
    until: Instant,
}

/// What has been verified lately.
#[derive(Default)]
struct Recent {
    known: Vec<Arc<Known>>,
    /// When the current second began, and the failures in it.
    since: Option<Instant>,
    failures: u32,
}

/// Verifies that packages are signed by signers of a rack, for one job or without one.
pub struct Signers {
    rack: String,
    job: Option<JobId>,
    anchor: TrustAnchor<'static>,
    revoked: Option<CertRevocationList<'static>>,
    recent: Mutex<Recent>,
}

impl Signers {
    /// The signers of `rack`. With a job, packages that are signed for another one are refused.
    ///
    /// # Errors
    /// [`SignersError`], if certificate or list cannot be used.
    pub fn new(
        rack: &str,
        job: Option<JobId>,
        authority: &SigningAuthority,
    ) -> Result<Self, SignersError> {
        let ca = CertificateDer::from(authority.ca.as_slice());
        let anchor = webpki::anchor_from_trusted_cert(&ca)
            .map_err(|error| SignersError::Authority(error.to_string()))?
            .to_owned();
        let revoked = (!authority.revoked.is_empty()).then(|| {
            OwnedCertRevocationList::from_der(&authority.revoked)
                .map(CertRevocationList::from)
                .map_err(|error| SignersError::Revoked(error.to_string()))
        });
        let (rack, revoked) = (rack.to_owned(), revoked.transpose()?);
        Ok(Self { rack, job, anchor, revoked, recent: Mutex::default() })
    }

    /// Verifies what travels with one jam of a package.
    ///
    /// # Errors
    /// [`SignatureError`].
    pub fn verify(&self, proof: &Proof<'_>) -> Result<Signer, SignatureError> {
        self.verify_message(proof.signature(), &proof.signed_message())
    }

    /// Verifies that `signature` is one of `message`.
    ///
    /// # Errors
    /// [`SignatureError`].
    pub fn verify_message(
        &self,
        signature: &Signature<'_>,
        message: &[u8],
    ) -> Result<Signer, SignatureError> {
        if let (Some(job), Some(signed_for)) = (self.job, signature.job.map(JobId))
            && job != signed_for
        {
            return Err(SignatureError::OtherJob { signed_for, job });
        }
        let now = Instant::now();
        let known = {
            let mut recent = self.recent.lock();
            if !recent.may_fail(now) {
                return Err(SignatureError::TooMany);
            }
            recent.known.retain(|known| known.until > now);
            let is_it = |known: &&Arc<Known>| known.certificate == signature.certificate;
            recent.known.iter().find(is_it).cloned()
        };
        let verified = match known {
            Some(known) => check_signature(signature, message, known.signer.clone()),
            None => self.verify_first(signature, message, now),
        };
        if verified.is_err() {
            self.recent.lock().failures += 1;
        }
        verified
    }

    /// As [`verify_message`](Self::verify_message), with a certificate that is not known yet.
    fn verify_first(
        &self,
        signature: &Signature<'_>,
        message: &[u8],
        now: Instant,
    ) -> Result<Signer, SignatureError> {
        let signer = self.verify_certificate(signature.certificate)?;
        let signer = check_signature(signature, message, signer)?;
        let (certificate, until) = (signature.certificate.to_vec(), now + REMEMBERED);
        let known = Arc::new(Known { certificate, signer: signer.clone(), until });
        let mut recent = self.recent.lock();
        if recent.known.len() >= MAX_KNOWN {
            recent.known.remove(0);
        }
        recent.known.push(known);
        Ok(signer)
    }

    /// Verifies that the rack's authority says that the holder of a certificate is a signer.
    fn verify_certificate(&self, certificate: &[u8]) -> Result<Signer, SignatureError> {
        let stranger = || SignatureError::Stranger { rack: self.rack.clone() };
        let certificate = CertificateDer::from(certificate);
        let entity = EndEntityCert::try_from(&certificate).map_err(|_| stranger())?;
        let prefix = format!("gossamer:{}/", self.rack);
        let mut names = entity.valid_uri_names().filter_map(|uri| uri.strip_prefix(&prefix));
        // As in the daemon, a certificate with two members is none.
        let (Some(words), None) = (names.next(), names.next()) else { return Err(stranger()) };
        let (role, name) = words.split_once('/').ok_or_else(stranger)?;
        let is_name = |text: &str| text.len() <= 63 && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_name(role) || !is_name(name) {
            return Err(stranger());
        }
        if role != "signer" {
            return Err(SignatureError::Role { name: name.to_owned(), role: role.to_owned() });
        }
        let lists: Vec<_> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| options.build());
        let path = entity.verify_for_usage(
            &[ECDSA_P256_SHA256, ED25519],
            std::slice::from_ref(&self.anchor),
            &[],
            UnixTime::now(),
            KeyUsage::required(&CODE_SIGNING),
            revocation,
            None,
        );
        let name = name.to_owned();
        match path {
            Ok(_) => {}
            Err(webpki::Error::CertRevoked) => return Err(SignatureError::Revoked { name }),
            Err(error) => {
                return Err(SignatureError::Certificate { name, reason: error.to_string() });
            }
        }
        let certificate = entity.serial().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Signer { name, certificate })
    }
}

impl Recent {
    /// Whether one more failure is allowed in this second.
    fn may_fail(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            (self.since, self.failures) = (Some(now), 0);
        }
        self.failures < MAX_FAILURES
    }
}

fn check_signature(
    signature: &Signature<'_>,
    message: &[u8],
    signer: Signer,
) -> Result<Signer, SignatureError> {
    let algorithm = match signature.algorithm {
        Algorithm::EcdsaP256 => ECDSA_P256_SHA256,
        Algorithm::Ed25519 => ED25519,
    };
    let certificate = CertificateDer::from(signature.certificate);
    let verified = EndEntityCert::try_from(&certificate)
        .and_then(|entity| entity.verify_signature(algorithm, message, signature.signature));
    match verified {
        Ok(()) => Ok(signer),
        Err(_) => Err(SignatureError::Forged { name: signer.name }),
    }
}

mod hexadecimal {
    use std::borrow::Cow;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
        let text: String =
            bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
        let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>();
        let wrong = || D::Error::custom("expected an even number of hexadecimal digits");
        bytes.filter(|_| rest.is_empty()).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests;

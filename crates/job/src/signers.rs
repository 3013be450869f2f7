//! [`Signers`]: who may sign packages of code for the processes of a job.
//!
//! Members of the rack with the role `signer` may. A daemon hands each process the certificate of the
//! rack's authority and its list of revoked certificates ([`SigningAuthority`]); so the process itself
//! verifies what arrives, over whatever path. Certificates, revocation and signatures are verified by
//! `rustls-webpki`, as for TLS.
//!
//! Verifying one signature of an elliptic curve takes nearly all of the time, and a package that
//! arrives needs three: the authority's of the signer's certificate, the authority's of the list of
//! revoked certificates, and the signer's of the package. The first two are verified once for each
//! [`Signers`], that is, for each list, and for certificates of [`SigningAuthority::signers`] before
//! anything arrives; the third is remembered for when the package comes again. All else (validity at
//! this time, key usage) is checked at every use.
//!
//! What cannot be verified is never remembered, except a certificate that the list revokes: honest
//! programs may go on sending what a revoked signer has signed. Its refusal is no failure, and from the
//! second on takes no signature check. The number of other failures in a second is limited, so that a peer which sends forged
//! signatures takes a few milliseconds of each second.

mod recent;
mod remembered;

use std::time::Instant;

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
use crate::signers::recent::Recent;
use crate::signers::remembered::Remembered;

/// The extended key usage of a signer's certificate: code signing (RFC 5280, section 4.2.1.12).
const CODE_SIGNING: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 3, 3];
/// Certificates of signers that are remembered, and that are verified ahead of time, at most; as many
/// revoked ones are remembered. One that is forgotten is verified again when a package comes with it.
pub const MAX_KNOWN_SIGNERS: usize = 64;
/// Failures in a second after which nothing more is verified in that second.
const MAX_FAILURES: u32 = 32;

/// The authority of a rack, as a process needs it to verify its signers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningAuthority {
    /// The certificate of the authority, in DER.
    #[serde(with = "hexadecimal")]
    pub ca: Vec<u8>,
    /// The authority's list of revoked certificates, in DER; empty if there is none.
    #[serde(with = "hexadecimal", default)]
    pub revoked: Vec<u8>,
    /// Certificates of signers, in DER, to be verified before a package comes with them. They are
    /// claims: one that is not of a signer of the rack is ignored.
    #[serde(with = "hexadecimal::list", default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<Vec<u8>>,
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

/// Verifies that packages are signed by signers of a rack, for one job or without one.
pub struct Signers {
    rack: String,
    job: Option<JobId>,
    anchor: TrustAnchor<'static>,
    revoked: Option<CertRevocationList<'static>>,
    /// The authority's signatures: of certificates and of the list.
    by_authority: [Remembered; 2],
    /// Those of packages.
    by_signers: [Remembered; 2],
    recent: Mutex<Recent>,
}

impl Signers {
    /// The signers of `rack`. With a job, packages that are signed for another one are refused. Verifies
    /// none of the certificates of `authority.signers`: [`verify_ahead`](Self::verify_ahead) does.
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
        let [by_authority, by_signers] =
            [(); 2].map(|()| [ECDSA_P256_SHA256, ED25519].map(Remembered::new));
        let recent = Mutex::default();
        Ok(Self { rack, job, anchor, revoked, by_authority, by_signers, recent })
    }

    /// Verifies certificates before packages come with them, so that those take less time. Ignores
    /// what is not the certificate of a signer, or is revoked.
    pub fn verify_ahead<'c>(&self, certificates: impl IntoIterator<Item = &'c [u8]>) {
        for certificate in certificates.into_iter().take(MAX_KNOWN_SIGNERS) {
            let der = CertificateDer::from(certificate);
            let entity = self.parse(&der);
            if entity.and_then(|it| self.verify_certificate(UnixTime::now(), &der, &it)).is_ok() {
                self.recent.lock().keep(certificate);
            }
        }
    }

    /// Verifies ahead of time what `before`, of an earlier list, knows.
    pub fn succeed(&self, before: &Signers) {
        let known = before.recent.lock().known.clone();
        self.verify_ahead(known.iter().map(|certificate| &**certificate));
    }

    /// Verifies what travels with one jam of a package.
    ///
    /// # Errors
    /// [`SignatureError`].
    pub fn verify(&self, proof: &Proof<'_>) -> Result<Signer, SignatureError> {
        self.verify_message(proof.signature(), &proof.signed_message())
    }

    /// As [`verify`](Self::verify), of what the process holds because an earlier list admitted it. The
    /// limit on failures in a second does not apply: it is for what peers send, and the process holds a
    /// bounded amount.
    ///
    /// # Errors
    /// [`SignatureError`], but not [`SignatureError::TooMany`].
    pub fn verify_held(&self, proof: &Proof<'_>) -> Result<Signer, SignatureError> {
        let signature = proof.signature();
        self.check_without_cost(signature)?;
        self.verify_unlimited(UnixTime::now(), signature, &proof.signed_message())
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
        self.verify_at(UnixTime::now(), signature, message)
    }

    fn verify_at(
        &self,
        now: UnixTime,
        signature: &Signature<'_>,
        message: &[u8],
    ) -> Result<Signer, SignatureError> {
        self.check_without_cost(signature)?;
        if !self.recent.lock().may_fail(Instant::now()) {
            return Err(SignatureError::TooMany);
        }
        let verified = self.verify_unlimited(now, signature, message);
        match verified {
            // Behind a good signature of the authority, which is not verified again.
            Ok(_) | Err(SignatureError::Revoked { .. }) => {}
            Err(_) => self.recent.lock().failures += 1,
        }
        verified
    }

    /// Refuses what takes no signature check to refuse, which does not count as a failure.
    fn check_without_cost(&self, signature: &Signature<'_>) -> Result<(), SignatureError> {
        if let (Some(job), Some(signed_for)) = (self.job, signature.job.map(JobId))
            && job != signed_for
        {
            return Err(SignatureError::OtherJob { signed_for, job });
        }
        match self.recent.lock().revoked_name(signature.certificate) {
            Some(name) => Err(SignatureError::Revoked { name: name.to_owned() }),
            None => Ok(()),
        }
    }

    fn verify_unlimited(
        &self,
        now: UnixTime,
        signature: &Signature<'_>,
        message: &[u8],
    ) -> Result<Signer, SignatureError> {
        let certificate = CertificateDer::from(signature.certificate);
        let entity = self.parse(&certificate)?;
        let signer = self.verify_certificate(now, &certificate, &entity)?;
        let signer = self.check_signature(signature, message, &entity, signer)?;
        self.recent.lock().keep(signature.certificate);
        Ok(signer)
    }

    fn parse<'c>(
        &self,
        certificate: &'c CertificateDer<'_>,
    ) -> Result<EndEntityCert<'c>, SignatureError> {
        EndEntityCert::try_from(certificate).map_err(|_| self.stranger())
    }

    fn stranger(&self) -> SignatureError {
        SignatureError::Stranger { rack: self.rack.clone() }
    }

    /// Verifies that the rack's authority says that the holder of a certificate is a signer.
    fn verify_certificate(
        &self,
        now: UnixTime,
        certificate: &CertificateDer<'_>,
        entity: &EndEntityCert<'_>,
    ) -> Result<Signer, SignatureError> {
        let stranger = || self.stranger();
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
        // The list does not change, so a certificate that it did not revoke it does not revoke: it may
        // have megabytes.
        let is_known = self.recent.lock().knows(certificate);
        let lists: Vec<_> = self.revoked.iter().filter(|_| !is_known).collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| options.build());
        let [p256, ed25519] = &self.by_authority;
        let path = entity.verify_for_usage(
            &[p256, ed25519],
            std::slice::from_ref(&self.anchor),
            &[],
            now,
            KeyUsage::required(&CODE_SIGNING),
            revocation,
            None,
        );
        let name = name.to_owned();
        match path {
            Ok(_) => {}
            Err(webpki::Error::CertRevoked) => {
                self.recent.lock().keep_revoked(certificate, &name);
                return Err(SignatureError::Revoked { name });
            }
            Err(error) => {
                return Err(SignatureError::Certificate { name, reason: error.to_string() });
            }
        }
        Ok(Signer { name, certificate: hexadecimal::text(entity.serial()) })
    }

    fn check_signature(
        &self,
        signature: &Signature<'_>,
        message: &[u8],
        entity: &EndEntityCert<'_>,
        signer: Signer,
    ) -> Result<Signer, SignatureError> {
        let [p256, ed25519] = &self.by_signers;
        let algorithm = match signature.algorithm {
            Algorithm::EcdsaP256 => p256,
            Algorithm::Ed25519 => ed25519,
        };
        match entity.verify_signature(algorithm, message, signature.signature) {
            Ok(()) => Ok(signer),
            Err(_) => Err(SignatureError::Forged { name: signer.name }),
        }
    }
}

mod hexadecimal {
    use std::borrow::Cow;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        bytes(&Cow::<str>::deserialize(from)?).ok_or_else(|| D::Error::custom(EXPECTED))
    }

    /// A list of such texts.
    pub(super) mod list {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(all: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
            to.collect_seq(all.iter().map(|bytes| text(bytes)))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Vec<Vec<u8>>, D::Error> {
            let texts = Vec::<Cow<'de, str>>::deserialize(from)?;
            let all = texts.iter().map(|text| bytes(text)).collect::<Option<_>>();
            all.ok_or_else(|| D::Error::custom(EXPECTED))
        }
    }

    const EXPECTED: &str = "expected an even number of hexadecimal digits";

    pub(super) fn text(bytes: &[u8]) -> String {
        let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
        bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    fn bytes(text: &str) -> Option<Vec<u8>> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
        pairs.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())
    }
}

#[cfg(test)]
mod tests;

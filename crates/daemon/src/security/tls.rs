//! TLS 1.3 with certificates on both sides, which every connection of the control plane uses.
//!
//! The version of the protocol is negotiated with the connection (ALPN), so that programs of
//! different versions disconnect before they exchange a message.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

use crate::security::identity::Identity;
use crate::security::member::{IdentityError, Member};

/// The version of the messages on the control plane.
const PROTOCOL: &[u8] = b"gossamer-control/1";

/// No encrypted connection can be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// Key and certificates do not match.
    #[error("cannot use this identity for TLS")]
    Credentials(#[from] rustls::Error),
    /// The authority's certificate, or its list of revoked certificates, is invalid.
    #[error("cannot use the certificate or revocation list of the rack's authority")]
    Authority(#[from] VerifierBuilderError),
    /// The peer is not a member of the rack.
    #[error("the peer is not a member of this rack")]
    Stranger(#[from] IdentityError),
}

/// The configuration of a daemon, which accepts only certificates that the rack's authority signed.
///
/// # Errors
/// [`TlsError`], if the identity is not usable.
pub fn server(identity: &Identity) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(roots(identity)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .with_crls(identity.revoked.clone())
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // No resumption: it would skip the check of validity, and cost memory here.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The configuration of a caller.
///
/// # Errors
/// [`TlsError`], if the identity is not usable.
pub fn client(identity: &Identity) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = Arc::new(roots(identity)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .with_crls(identity.revoked.clone())
        .build()?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The member at the other end of a connection whose certificates were checked.
///
/// # Errors
/// [`TlsError::Stranger`], if its certificate names another rack, or no member.
pub fn peer(certificates: Option<&[CertificateDer<'_>]>, of: &Member) -> Result<Member, TlsError> {
    let certificate = certificates.and_then(<[_]>::first).ok_or(IdentityError::NotAMember)?;
    let member = Member::of(certificate)?;
    if member.rack == of.rack { Ok(member) } else { Err(IdentityError::NotAMember.into()) }
}

/// Whether `key` is the key of `certificate`.
pub(crate) fn belong_together(
    certificate: &CertificateDer<'_>,
    key: PrivateKeyDer<'static>,
) -> bool {
    CertifiedKey::from_der(vec![certificate.clone().into_owned()], key, &provider()).is_ok()
}

fn roots(identity: &Identity) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.ca.clone())?;
    Ok(roots)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

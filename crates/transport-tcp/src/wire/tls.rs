//! TLS as this crate uses it: version 1.3, both sides with certificates of the job's authority,
//! and a host can be only the one that its certificate names.

use crate::{Credentials, JobId, certificate_name};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    ServerConnection,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};
use std::{
    fmt::{self, Display},
    sync::Arc,
};
use thiserror::Error;
use transport_api::HostId;

/// What a process of a job needs to speak TLS with the others.
#[derive(Clone)]
pub struct Tls {
    job: JobId,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// For a host of `job`; `None` without credentials.
    ///
    /// # Errors
    /// [`TlsError`] if the credentials cannot be used.
    pub fn new(job: JobId, credentials: &Credentials) -> Result<Option<Self>, TlsError> {
        let Credentials::Tls { certificate, key, ca } = credentials else { return Ok(None) };
        let certificates = |pem: &str, what: &str| {
            let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
            let all =
                all.map_err(|error| TlsError(format!("the {what} is not valid PEM: {error}")))?;
            let none = || TlsError(format!("the {what} has no certificate"));
            if all.is_empty() { Err(none()) } else { Ok(all) }
        };
        let chain = certificates(certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| TlsError(format!("the key is not valid PEM: {error}")))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca, "authority")? {
            roots
                .add(root)
                .map_err(|error| TlsError(format!("the authority cannot be used: {error}")))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier = verifier.map_err(words)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(words)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(words)?;
        // A connection is made once and kept: there is nothing to resume.
        server.send_tls13_tickets = 0;
        let mut client =
            client_config(provider, roots)?.with_client_auth_cert(chain, key).map_err(words)?;
        client.resumption = Resumption::disabled();
        Ok(Some(Self { job, client: Arc::new(client), server: Arc::new(server) }))
    }

    /// The dialler's side of a connection to `host`, which must prove its identity.
    ///
    /// # Errors
    /// [`TlsError`], if the library refuses.
    pub fn dial(&self, host: HostId) -> Result<Connection, TlsError> {
        let name = name(self.job, host)?;
        Ok(ClientConnection::new(self.client.clone(), name).map_err(words)?.into())
    }

    /// The listener's side of a connection from any host of the job;
    /// [`objection`](Self::objection) checks which one it is.
    ///
    /// # Errors
    /// [`TlsError`], if the library refuses.
    pub fn listen(&self) -> Result<Connection, TlsError> {
        Ok(ServerConnection::new(self.server.clone()).map_err(words)?.into())
    }

    /// Why the other side of `connection`, whose handshake is complete, is not `host`.
    pub fn objection(&self, connection: &Connection, host: HostId) -> Option<String> {
        let none = || TlsError("it presented no certificate".into());
        let check = || {
            let shown = connection.peer_certificates().and_then(|chain| chain.first());
            let shown = shown.ok_or_else(none)?;
            let shown = ParsedCertificate::try_from(shown).map_err(words)?;
            let name = name(self.job, host)?;
            rustls::client::verify_server_name(&shown, &name)
                .map_err(|_| TlsError(format!("its certificate is not that of {host}")))
        };
        check().err().map(|error: TlsError| error.0)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("job", &self.job).finish_non_exhaustive()
    }
}

/// Why TLS cannot be used: what is wrong with the credentials, in words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TlsError(pub(crate) String);

/// AES-128 comes first: batches are short, and it seals and opens their records sooner than AES-256,
/// which rustls would prefer. Neither is broken while a job lasts.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    let first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != first);
    provider
}

type ClientBuilder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn client_config(
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
) -> Result<ClientBuilder, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13]).map_err(words)?;
    Ok(builder.with_root_certificates(roots))
}

fn name(job: JobId, host: HostId) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(certificate_name(job, host)).map_err(words)
}

fn words(error: impl Display) -> TlsError {
    TlsError(error.to_string())
}

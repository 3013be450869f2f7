//! TLS between the processes of a job: version 1.3, both sides with certificates of the job's
//! authority, and a host can be only the one that its certificate names. Used by the transports over
//! sockets, and by the tasks of a Slurm step before they have a transport.

use std::fmt::{self, Display};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    ServerConnection,
};
use thiserror::Error;
use transport_api::HostId;

use crate::id::{JobId, certificate_name};

/// The TLS configuration of a process of a job, for connections with the others.
#[derive(Clone)]
pub struct Tls {
    job: JobId,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// For a host of `job`, all in PEM: its `certificate` with what leads from it to `ca`, the
    /// private `key` of the certificate, and the certificate of the job's authority.
    ///
    /// # Errors
    /// [`TlsError`], if one of them cannot be parsed, or the key is not that of the certificate.
    pub fn new(job: JobId, certificate: &str, key: &str, ca: &str) -> Result<Self, TlsError> {
        let certificates = |pem: &str, what: &str| {
            let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
            let all = all.map_err(|error| TlsError(format!("the {what} is not PEM: {error}")))?;
            let none = || TlsError(format!("the PEM of the {what} holds no certificate"));
            if all.is_empty() { Err(none()) } else { Ok(all) }
        };
        let chain = certificates(certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| TlsError(format!("the key is not PEM: {error}")))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca, "authority")? {
            roots
                .add(root)
                .map_err(|error| TlsError(format!("the authority is not usable: {error}")))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier = verifier.map_err(describe)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(describe)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(describe)?;
        // Connections last as long as the job: there is nothing to resume.
        server.send_tls13_tickets = 0;
        let mut client =
            client_config(provider, roots)?.with_client_auth_cert(chain, key).map_err(describe)?;
        client.resumption = Resumption::disabled();
        Ok(Self { job, client: Arc::new(client), server: Arc::new(server) })
    }

    /// The dialler's side of a connection to `host`, whose certificate must name that host.
    ///
    /// # Errors
    /// [`TlsError`], if the library refuses.
    pub fn dial(&self, host: HostId) -> Result<Connection, TlsError> {
        let name = name(self.job, host)?;
        Ok(ClientConnection::new(self.client.clone(), name).map_err(describe)?.into())
    }

    /// The listener's side of a connection from a host of the job; [`objection`](Self::objection)
    /// checks from which one.
    ///
    /// # Errors
    /// [`TlsError`], if the library refuses.
    pub fn listen(&self) -> Result<Connection, TlsError> {
        Ok(ServerConnection::new(self.server.clone()).map_err(describe)?.into())
    }

    /// Why the other side of `connection`, whose handshake is complete, is not `host`.
    pub fn objection(&self, connection: &Connection, host: HostId) -> Option<String> {
        let none = || TlsError("it sent no certificate".into());
        let check = || {
            let shown = connection.peer_certificates().and_then(|chain| chain.first());
            let shown = shown.ok_or_else(none)?;
            let shown = ParsedCertificate::try_from(shown).map_err(describe)?;
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

/// The credentials cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TlsError(String);

/// AES-128 comes first: batches are short, and it seals and opens their records sooner than AES-256,
/// which rustls would prefer. Both outlast a job by far.
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
    let builder = builder.with_protocol_versions(&[&TLS13]).map_err(describe)?;
    Ok(builder.with_root_certificates(roots))
}

fn name(job: JobId, host: HostId) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(certificate_name(job, host)).map_err(describe)
}

fn describe(error: impl Display) -> TlsError {
    TlsError(error.to_string())
}

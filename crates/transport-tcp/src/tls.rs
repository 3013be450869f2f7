//! TLS as this crate uses it: version 1.3, both sides with certificates of the job's authority,
//! and a host can be only the one that its certificate names.

use crate::{Credentials, JobId, certificate_name};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};
use std::{fmt::Display, sync::Arc};
use transport_api::HostId;

/// What a process of a job needs to speak TLS with the others.
#[derive(Clone)]
pub(crate) struct Tls {
    job: JobId,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// `None` without credentials. The error says in words what is wrong with them.
    pub(crate) fn new(job: JobId, credentials: &Credentials) -> Result<Option<Self>, String> {
        let Credentials::Tls { certificate, key, ca } = credentials else { return Ok(None) };
        let certificates = |pem: &str, what: &str| {
            let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
            let all = all.map_err(|error| format!("the {what} is no PEM: {error}"))?;
            if all.is_empty() { Err(format!("the {what} has no certificate")) } else { Ok(all) }
        };
        let chain = certificates(certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| format!("the key is no PEM: {error}"))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca, "authority")? {
            roots.add(root).map_err(|error| format!("the authority: {error}"))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
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

    /// The dialler's side of a connection to `host`, which must prove that it is.
    pub(crate) fn dial(&self, host: HostId) -> Result<Connection, String> {
        let name = name(self.job, host)?;
        Ok(ClientConnection::new(self.client.clone(), name).map_err(words)?.into())
    }

    /// The listener's side of a connection from a host of the job.
    pub(crate) fn listen(&self) -> Result<Connection, String> {
        Ok(ServerConnection::new(self.server.clone()).map_err(words)?.into())
    }

    /// Why the other side of `connection`, whose handshake is complete, is not `host`.
    pub(crate) fn objection(&self, connection: &Connection, host: HostId) -> Option<String> {
        let check = || {
            let chain = connection.peer_certificates().ok_or("it has shown no certificate")?;
            let shown = chain.first().ok_or("it has shown no certificate")?;
            let shown = ParsedCertificate::try_from(shown).map_err(words)?;
            let name = name(self.job, host)?;
            rustls::client::verify_server_name(&shown, &name)
                .map_err(|_| format!("its certificate is not that of {host}"))
        };
        check().err()
    }
}

type ClientBuilder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn client_config(
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
) -> Result<ClientBuilder, String> {
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13]).map_err(words)?;
    Ok(builder.with_root_certificates(roots))
}

fn name(job: JobId, host: HostId) -> Result<ServerName<'static>, String> {
    ServerName::try_from(certificate_name(job, host)).map_err(words)
}

fn words(error: impl Display) -> String {
    error.to_string()
}

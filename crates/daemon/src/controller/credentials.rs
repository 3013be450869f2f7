//! The credentials of a job's hosts: certificates of an authority that is made for the job and dropped
//! at once.

use gossamer_job::{AuthorityError, HostId, JobAuthority, JobDescription, JobHost, JobId, Secret};

/// The fields that all descriptions of a job share.
pub(crate) struct Common {
    pub(crate) rack: String,
    pub(crate) job: JobId,
    pub(crate) hosts: Vec<JobHost>,
    pub(crate) secret: Secret,
    pub(crate) loss_bound_ms: u64,
}

/// The description for each host of a job; `pin` lists whether its threads are pinned.
pub(crate) fn descriptions(
    common: &Common,
    pin: &[bool],
) -> Result<Vec<JobDescription>, AuthorityError> {
    let authority = JobAuthority::random(common.job)?;
    let describe = |host: u32, pin: bool| {
        let (certificate, key) = authority.certificate(HostId(host))?;
        Ok(JobDescription {
            rack: common.rack.clone(),
            job: common.job,
            host,
            hosts: common.hosts.clone(),
            certificate,
            key,
            ca: authority.ca(),
            secret: common.secret.clone(),
            loss_bound_ms: common.loss_bound_ms,
            pin,
            signing: None,
        })
    };
    (0..).zip(pin).map(|(host, pin)| describe(host, *pin)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gossamer_job::certificate_name;
    use rustls::RootCertStore;
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

    use super::*;
    use crate::security::tls;

    fn job(number: u128) -> Vec<JobDescription> {
        let host = |port| JobHost {
            name: format!("h{port}"),
            address: ([127, 0, 0, 1], port).into(),
            threads: 1,
        };
        let hosts = vec![host(1), host(2)];
        let (rack, job, secret) = ("r".into(), JobId(number), Secret::new([5; 32]));
        let common = Common { rack, job, hosts, secret, loss_bound_ms: 1000 };
        descriptions(&common, &[false, true]).unwrap()
    }

    /// Whether `judge` takes the holder of `certificate` for host `name` of its job.
    fn trusts(judge: &JobDescription, certificate: &str, name: u32) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(judge.ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(certificate_name(judge.job, HostId(name))).unwrap();
        let verifier: Arc<dyn rustls::client::danger::ServerCertVerifier> =
            verifier.build().unwrap();
        verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn the_hosts_of_a_job_know_each_other_by_number() {
        let job = job(1);
        assert_eq!((job[0].host, job[1].host, job[0].pin, job[1].pin), (0, 1, false, true));
        assert_ne!(job[0].key, job[1].key);
        for host in &job {
            let certificate = CertificateDer::from_pem_slice(host.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(host.key.0.as_bytes()).unwrap();
            assert!(tls::belong_together(&certificate, key));
        }
        assert!(trusts(&job[0], &job[1].certificate, 1));
        assert!(!trusts(&job[0], &job[1].certificate, 0), "it is another host");
    }

    #[test]
    fn another_job_is_not_trusted() {
        let (one, two) = (job(1), job(2));
        assert!(!trusts(&one[0], &two[1].certificate, 1));
    }
}

//! Packages of jams that the daemon brings into this process ([`Packages`]), whose signatures it
//! verifies by the authority in its job description, and reports of the jams that run.
//!
//! Two threads of their own serve the socket to the daemon. No thread of the rack waits for either: a
//! entry that finds the queue full is counted and not reported.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::{io, thread};

use gossamer_job::{
    CodeEvent, FromProcess, JobDescription, JobId, PackageHeader, PackageSocket, SignatureError,
    Signers, SignersError, SigningAuthority,
};
use jam::{AuditEntry, AuditEvent, Proof, Receiver, Refusal, Verifier};

use crate::RackError;

/// Entries of the audit log that wait to be reported.
const QUEUE: usize = 64;

/// Verifies by the signers of the rack.
struct RackSigners(Arc<Signers>);

impl Verifier for RackSigners {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        self.0.verify(proof).map(|signer| signer.name).map_err(refusal)
    }

    fn verify_held(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        self.0.verify_held(proof).map(|signer| signer.name).map_err(refusal)
    }
}

/// Why a signature is not taken, for the sender of the code.
fn refusal(error: SignatureError) -> Refusal {
    let reason = error.to_string();
    match error {
        SignatureError::TooMany => Refusal::NotNow { reason },
        _ => Refusal::Policy { reason },
    }
}

/// Whose signatures this process takes.
struct Trusted {
    rack: String,
    job: JobId,
    authority: SigningAuthority,
    /// Those whose signatures the receiver takes.
    signers: Option<Arc<Signers>>,
}

impl Trusted {
    /// Has the receiver take the signatures of these signers, and none of those who are revoked. Then
    /// verifies certificates ahead of time, those that the signers before them knew, too.
    fn install(&mut self, receiver: &Receiver) -> Result<(), SignersError> {
        let signers = Arc::new(Signers::new(&self.rack, Some(self.job), &self.authority)?);
        receiver.set_verifier(RackSigners(signers.clone()));
        let before = self.signers.replace(signers.clone());
        self.verify_ahead();
        if let Some(before) = before {
            signers.succeed(&before);
        }
        Ok(())
    }

    /// Verifies the certificates that came with the authority.
    fn verify_ahead(&self) {
        if let Some(signers) = &self.signers {
            signers.verify_ahead(self.authority.signers.iter().map(Vec::as_slice));
        }
    }

    /// Has the receiver do as `authority` says, if it is another one than before. Other certificates of
    /// signers alone are verified ahead of time, and what is linked stays.
    fn renew(
        &mut self,
        receiver: &Receiver,
        authority: SigningAuthority,
    ) -> Result<(), SignersError> {
        if authority == self.authority {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.authority, authority);
        if (&before.ca, &before.revoked) == (&self.authority.ca, &self.authority.revoked) {
            self.verify_ahead();
            return Ok(());
        }
        // If it fails, the next package with this authority fails, too.
        let installed = self.install(receiver);
        if installed.is_err() {
            self.authority = before;
        }
        installed
    }
}

/// What a process has to take packages with, before its rack runs.
pub(crate) struct Prepared {
    socket: PackageSocket,
    trusted: Trusted,
}

/// Has this process take what the signers of its rack sign. `None` if its daemon has told it no
/// authority.
///
/// # Errors
/// [`RackError`], if the authority, or the socket for packages, cannot be used.
pub(crate) fn prepare(job: &JobDescription) -> Result<Option<Prepared>, RackError> {
    let Some(authority) = job.signing.clone() else { return Ok(None) };
    let mut trusted = Trusted { rack: job.rack.clone(), job: job.job, authority, signers: None };
    let unusable = |error: SignersError| RackError::Settings(error.to_string());
    trusted.install(jam::receiver()).map_err(unusable)?;
    let socket = PackageSocket::from_environment()?;
    Ok(socket.map(|socket| Prepared { socket, trusted }))
}

/// Takes packages and reports entries of the audit log until it is dropped.
pub(crate) struct Packages {
    socket: PackageSocket,
    reports: Option<mpsc::SyncSender<Report>>,
    threads: Vec<thread::JoinHandle<()>>,
}

enum Report {
    Message(FromProcess),
    /// Nothing more is reported.
    End,
}

impl Packages {
    /// Starts the threads.
    ///
    /// # Errors
    /// The error of the system, if it starts no threads.
    pub(crate) fn start(prepared: Prepared) -> io::Result<Self> {
        let Prepared { socket, mut trusted } = prepared;
        let (reports, queue) = mpsc::sync_channel(QUEUE);
        let (mut reading, mut writing) = (socket.try_clone()?, socket.try_clone()?);
        let lost = Arc::new(AtomicU64::new(0));
        jam::receiver().set_audit(reporter(reports.clone(), lost.clone()));
        // An error means that the daemon has ended, and this process with it.
        let write = move || drop(report_all(queue, &lost, |message| writing.send(message)));
        let answers = reports.clone();
        let read = move || {
            // An error means that the daemon has ended, and this process with it.
            while let Ok(Some((header, bytes))) = reading.receive() {
                let number = header.number;
                let refused = take(jam::receiver(), &mut trusted, header, &bytes).err();
                let answer = Report::Message(FromProcess::Package { number, refused });
                if answers.send(answer).is_err() {
                    return;
                }
            }
        };
        let mut packages = Self { socket, reports: Some(reports), threads: Vec::new() };
        for (name, run) in [
            ("gossamer-audit", Box::new(write) as Box<dyn FnOnce() + Send>),
            ("gossamer-packages", Box::new(read)),
        ] {
            packages.threads.push(thread::Builder::new().name(name.into()).spawn(run)?);
        }
        Ok(packages)
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        if let Some(reports) = self.reports.take()
            && reports.try_send(Report::End).is_err()
        {
            // The daemon reads too slowly for the rest.
            self.socket.shut_down();
        }
        // What was reported is sent first.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
            self.socket.shut_down();
        }
    }
}

/// Reports what the process does with code: counts in `lost` what finds the queue full.
fn reporter(reports: mpsc::SyncSender<Report>, lost: Arc<AtomicU64>) -> impl Fn(&AuditEntry<'_>) {
    move |entry| {
        let message = FromProcess::Audit {
            event: match entry.event {
                AuditEvent::FirstRun => CodeEvent::FirstRun,
                AuditEvent::RiedStarts => CodeEvent::RiedStarts,
                AuditEvent::RiedLoaded => CodeEvent::RiedLoaded,
                AuditEvent::RiedUnloaded => CodeEvent::RiedUnloaded,
            },
            name: entry.name.to_owned(),
            digest: entry.digest.to_string(),
            origin: entry.origin.to_string(),
            host: entry.host,
        };
        if reports.try_send(Report::Message(message)).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends the reports of the queue until its end, and how many were lost meanwhile.
fn report_all(
    queue: mpsc::Receiver<Report>,
    lost: &AtomicU64,
    mut send: impl FnMut(&FromProcess) -> io::Result<()>,
) -> io::Result<()> {
    for report in queue {
        let is_end = match &report {
            Report::Message(message) => {
                send(message)?;
                false
            }
            Report::End => true,
        };
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            count => send(&FromProcess::NotReported(count))?,
        }
        if is_end {
            break;
        }
    }
    Ok(())
}

/// Takes a package, or a newer authority, that the daemon brings; the error is for the member who sent
/// it.
fn take(
    receiver: &Receiver,
    trusted: &mut Trusted,
    header: PackageHeader,
    bytes: &[u8],
) -> Result<(), String> {
    trusted.renew(receiver, header.authority).map_err(|error| error.to_string())?;
    if bytes.is_empty() {
        return Ok(());
    }
    let taken = catch_unwind(AssertUnwindSafe(|| receiver.take_package(bytes)));
    match taken {
        Ok(taken) => taken.map(drop).map_err(|refusal| refusal.to_string()),
        // The package is there, and a panicking program has said why on its standard error.
        Err(_) => Err("the program panicked when it was told of the package".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use jam::{Digest, Origin};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn ca() -> Vec<u8> {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn what_was_not_verified_may_come_again() {
        assert!(matches!(refusal(SignatureError::TooMany), Refusal::NotNow { .. }));
        let revoked = SignatureError::Revoked { name: "ann".into() };
        assert!(matches!(refusal(revoked), Refusal::Policy { .. }));
    }

    /// The proof of a package without elements, with an invalid certificate (`jam_format::Table` and
    /// `jam_format::Signature`).
    fn proof_of_a_stranger() -> Vec<u8> {
        let (name, mut header) = (b"p", [0; 40]);
        header[..5].copy_from_slice(b"JAMP\x04");
        header[8] = 40 + name.len() as u8;
        let mut block = [0; 24 + 2];
        // The version, Ed25519, and a byte each of signature and certificate.
        block[..5].copy_from_slice(&[1, 2, 1, 0, 1]);
        header[12] = block.len() as u8;
        header[16] = name.len() as u8;
        [&header[..], name, &block].concat()
    }

    #[test]
    fn what_a_process_holds_is_judged_after_too_many_failures() {
        let authority = SigningAuthority { ca: ca(), ..SigningAuthority::default() };
        let verifier = RackSigners(Arc::new(Signers::new("lab", None, &authority).unwrap()));
        let proof = proof_of_a_stranger();
        let proof = Proof::parse(&proof).unwrap();
        let is_put_off = |_| matches!(verifier.verify(&proof), Err(Refusal::NotNow { .. }));
        assert!((0..10_000).any(is_put_off), "there is a limit on what arrives");
        let refused = verifier.verify_held(&proof).unwrap_err();
        assert!(matches!(refused, Refusal::Policy { .. }), "{refused}");
    }

    #[test]
    fn entries_that_find_the_queue_full_are_counted() {
        let (reports, queue) = mpsc::sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let report = reporter(reports.clone(), lost.clone());
        let entry = |number: usize| {
            let (event, digest) = (AuditEvent::FirstRun, Digest::of(&number.to_le_bytes()));
            let (name, origin, host) = (&*format!("jam{number}"), &Origin::Peer, Some(1));
            report(&AuditEntry { event, name, digest, origin, host });
        };
        (0..QUEUE + 36).for_each(entry);
        assert!(reports.try_send(Report::End).is_err(), "the queue is full");
        drop((report, reports));
        let mut sent = Vec::new();
        let mut send = |message: &FromProcess| {
            sent.push(message.clone());
            Ok(())
        };
        report_all(queue, &lost, &mut send).unwrap();
        // What is lost after the last entry.
        let (reports, queue) = mpsc::sync_channel(QUEUE);
        lost.store(5, Ordering::Relaxed);
        reports.send(Report::End).unwrap();
        report_all(queue, &lost, &mut send).unwrap();
        let entries = sent.iter().filter(|message| matches!(message, FromProcess::Audit { .. }));
        assert_eq!((entries.count(), sent.len()), (QUEUE, QUEUE + 2));
        assert_eq!(sent[1], FromProcess::NotReported(36), "behind the first that is sent");
        assert_eq!(sent.last(), Some(&FromProcess::NotReported(5)));
    }

    #[test]
    fn other_certificates_of_signers_alone_keep_what_is_admitted() {
        let authority = SigningAuthority { ca: ca(), ..SigningAuthority::default() };
        let mut trusted = Trusted {
            rack: "lab".into(),
            job: JobId(1),
            authority: authority.clone(),
            signers: None,
        };
        trusted.install(jam::receiver()).unwrap();
        let mut renew = |authority: SigningAuthority| {
            let before = trusted.signers.clone().unwrap();
            let header = PackageHeader { number: 1, bytes: 0, authority: authority.clone() };
            let taken = take(jam::receiver(), &mut trusted, header, &[]);
            assert_eq!(trusted.authority == authority, taken.is_ok());
            let is_same = Arc::ptr_eq(&before, trusted.signers.as_ref().unwrap());
            (taken.is_ok(), is_same)
        };
        let signers = vec![b"of a new signer".to_vec()];
        assert_eq!(renew(SigningAuthority { signers, ..authority.clone() }), (true, true));
        assert_eq!(renew(authority.clone()), (true, true));
        assert_eq!(renew(SigningAuthority { ca: ca(), ..authority.clone() }), (true, false));
        let revoked = b"not a list".to_vec();
        assert_eq!(renew(SigningAuthority { revoked, ..authority }), (false, true));
    }
}

//! What a process is told, and what it may send.

use gossamer_job::PackageSocket;

use super::*;
use crate::host::daemon::tests::daemon_in;
use crate::host::jobs::tests::request;

fn authority(list: u8) -> SigningAuthority {
    SigningAuthority { ca: vec![1], revoked: vec![list], signers: Vec::new() }
}

/// What a process is told that was started with `told`, when two packages wait for it and the
/// newest list is 2: the lists and the lengths of the packages.
async fn told(told: SigningAuthority) -> Vec<(u8, usize)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let (to_process, deliveries) = mpsc::channel(QUEUE);
    for len in [3, 5] {
        let (answer, _) = oneshot::channel();
        let package = vec![0; len].into();
        to_process.try_send(Delivery { package, answer }).unwrap();
    }
    drop(to_process);
    let newest = Arc::new(authority(2));
    let ours = UnixStream::from_std(ours).unwrap();
    let waiting = Waiting::default();
    hand_all(deliveries, ours, &waiting, || newest.clone(), Some(told)).await;
    let (mut process, mut all) = (PackageSocket::from(theirs), Vec::new());
    while let Some((header, bytes)) = process.receive().unwrap() {
        all.push((header.authority.revoked[0], bytes.len()));
    }
    all
}

#[tokio::test]
async fn a_process_has_the_newest_list_of_revoked_certificates() {
    assert_eq!(told(authority(2)).await, [(2, 3), (2, 5)]);
    assert_eq!(told(authority(1)).await, [(2, 0), (2, 3), (2, 5)], "at once");
}

#[tokio::test]
async fn garbage_of_a_process_ends_the_conversation() {
    for (garbage, reason) in [
        (&[0xff; 8][..], GARBAGE),
        (&[2, 0, 0, 0, b'{', b'x'], GARBAGE),
        (&[9, 0, 0, 0, 1], CLOSED),
        (&[], CLOSED),
    ] {
        let mut from = garbage;
        assert_eq!(receive_message(&mut from).await, Err(reason), "{garbage:?}");
    }
    let message = FromProcess::NotReported(3);
    let bytes = package_message(&message);
    assert_eq!(receive_message(&mut bytes.as_slice()).await, Ok(message));
}

#[tokio::test]
async fn a_process_that_cannot_be_told_of_a_revocation_is_reported_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let (daemon, _acceptor) = daemon_in(place.path());
    for (job, sent, reason) in [(1, &[][..], CLOSED), (2, &[0xff; 4], GARBAGE)] {
        let admitted = daemon.jobs.admit(&request(job), &"ann".parse().unwrap()).unwrap();
        let job = &admitted.job;
        assert_eq!(tell_of_authority(job), Ok(()), "it has not started");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(sent).await.unwrap();
        drop(theirs);
        let told = Some((*daemon.signing_authority()).clone());
        serve(ours, job.clone(), daemon.clone(), told).await;
        assert_eq!(tell_of_authority(job), Err(reason));
        assert_eq!(hand_over(job, Arc::default()).await.as_deref(), Some(reason));
    }
}

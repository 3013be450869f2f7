//! The hosts of a job, and when one process ends the others.

use daemon_protocol::{EndedBy, Role};

use super::*;
use crate::controller::link::ToSend;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn hosts_are_named_once() {
    assert!(check_hosts(&[]).is_err());
    assert!(check_hosts(&[name("a"), name("b")]).is_ok());
    let error = check_hosts(&[name("a"), name("b"), name("a")]).unwrap_err();
    assert!(error.to_string().contains("duplicate host a"), "{error}");
}

/// How many milliseconds process 1 of a job gets to end when process 0 ends in this way, if it is told
/// to; `interrupted` is the signal with which the user has ended the job.
fn grace_of_other(outcome: Outcome, interrupted: Option<i32>) -> Option<u32> {
    let hosts = vec![name("a"), name("b")];
    let (link, _) = Link::in_test();
    let (other, mut sent) = Link::in_test();
    let mut job = Job {
        id: JobId(1),
        names: hosts.iter().map(Name::to_string).collect(),
        hosts,
        links: vec![link, other],
        incoming: mpsc::channel(1).1,
        file: PathBuf::new(),
        outcomes: vec![],
        has_ended: vec![false; 2],
        is_quiet: vec![false; 2],
        interrupted,
        room: Arc::new(Semaphore::new(0)),
    };
    job.note(0, outcome);
    match sent.try_recv() {
        Ok(ToSend::Message(FromController::Stop { grace_ms, .. })) => Some(grace_ms),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

#[test]
fn a_process_that_the_user_ends_takes_no_time_from_the_others() {
    let ended =
        |how, ended_by| Outcome::Ended(Ending { how, ended_by, panic: None, last_lines: vec![] });
    let killed = || ended(How::Killed(2), Some(EndedBy::Controller));
    assert_eq!(grace_of_other(killed(), Some(2)), None);
    // It has heard of the end of its peer before its daemon was told to end it.
    assert_eq!(grace_of_other(ended(How::Exited(1), None), Some(2)), None);
    // The controller had another reason, for which it has told all of them.
    assert_eq!(grace_of_other(killed(), None), None);
    assert_eq!(grace_of_other(ended(How::Exited(0), None), None), None);
    let by_member = EndedBy::Member(name("ann"), Role::Admin);
    for outcome in [
        ended(How::Exited(1), None),
        ended(How::Killed(15), Some(by_member)),
        Outcome::Lost("its connection was closed".into()),
    ] {
        assert_eq!(grace_of_other(outcome, None), Some(GRACE_MS));
    }
}

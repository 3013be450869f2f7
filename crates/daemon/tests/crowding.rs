//! Members who ask for more than their share: the others are served meanwhile.

mod common;

use std::process::Child;
use std::sync::Arc;

use common::calls::{Connection, TIMEOUT, as_member, call, runtime};
use common::{Rack, Ran, as_user, eventually, finish};
use daemon_protocol::{Answer, Request, Role};
use gossamer_daemon::security::authority::Authority;
use gossamer_job::JobId;
use rustls::ClientConfig;
use tokio::time::timeout;

/// Starts a job that has printed something and goes on; its number.
fn start(rack: &Rack) -> (Child, JobId) {
    let job = rack.start("a", "echo said; exec sleep 600");
    let number = eventually("the job has printed something", || {
        let list = Ran::from(rack.gossamer(&["ps", "--json"]).output().unwrap());
        let jobs: serde_json::Value = serde_json::from_str(&list.out).ok()?;
        let number = jobs[0]["job"].as_str()?.to_owned();
        let log = Ran::from(rack.gossamer(&["logs", &number]).output().unwrap());
        (log.out == "[a] said\n").then(|| number.parse().unwrap())
    });
    (job, number)
}

/// Tries to follow a log `times` times, as fast as it goes, and keeps what is served; why the others
/// were not.
async fn follow(
    rack: &Rack,
    config: &Arc<ClientConfig>,
    job: JobId,
    times: usize,
) -> (Vec<Connection>, Vec<String>) {
    let request = Request::Logs { job, follow: true };
    let (mut held, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..times {
        match timeout(TIMEOUT, call(rack, config.clone(), &request)).await {
            Ok(Ok((Answer::Refused(reason), _))) => refused.push(reason),
            Ok(Ok((Answer::Log(..), connection))) => held.push(connection),
            Ok(Ok((answer, _))) => panic!("{answer:?}"),
            // The daemon takes no connection any more.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    (held, refused)
}

#[test]
fn a_viewer_who_follows_a_thousand_logs_keeps_no_administrator_out() {
    let rack = Rack::new(&["a"]);
    rack.add_viewer();
    // The default limit of open files of a process.
    let mut limit = as_user("prlimit");
    limit.args(["--nofile=1024:1024", "--pid", &rack.daemon_pid(0).to_string()]);
    assert!(limit.status().expect("prlimit of util-linux").success());
    let (job, number) = start(&rack);
    let viewer = as_member(&rack, "viewer");
    let (held, refused) = runtime().block_on(follow(&rack, &viewer, number, 1030));
    assert_eq!((held.len(), refused.len()), (16, 1014));
    let reason = "viewer viewer follows 16 logs at this daemon, the limit: stop following one";
    assert!(refused.iter().all(|text| text == reason), "{:?}", refused.first());

    let mut ps = rack.gossamer(&["ps"]);
    let ran = Ran::from(ps.env("GOSSAMER_IDENTITY", rack.path("rack/viewer")).output().unwrap());
    assert_eq!(ran.status, Some(0), "the viewer may still ask: {ran:?}");
    let ran = rack.script("a", "echo here");
    assert_eq!(ran.out, "[a] here\n", "{ran:?}");
    let killed = Ran::from(rack.gossamer(&["kill", &number.to_string()]).output().unwrap());
    assert_eq!(killed.status, Some(0), "{killed:?}");
    let ran = finish(job);
    assert!(ran.err.contains("was ended by admin (admin)"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn a_job_can_be_killed_when_all_places_are_taken() {
    let rack = Rack::new(&["a"]);
    let (job, number) = start(&rack);
    let dir = rack.place.path().join("rack");
    runtime().block_on(async {
        let mut all = Vec::new();
        for member in 0..17 {
            let name = format!("admin{member}");
            let authority = Authority::open(&dir).unwrap();
            authority.make_member(&name.parse().unwrap(), Role::Admin).unwrap();
            drop(authority);
            let (held, refused) = follow(&rack, &as_member(&rack, &name), number, 65).await;
            // One place is that of the job's own controller.
            let is_full = all.len() + held.len() == 1023;
            assert!(held.len() == 64 || is_full, "{member}: {} {refused:?}", held.len());
            all.extend(held);
            if is_full {
                break;
            }
        }
        assert_eq!(all.len(), 1023);
        let hosts = Ran::from(rack.gossamer(&["hosts"]).output().unwrap());
        assert!(
            hosts.err.contains("1024 requests are in progress at this daemon, the limit"),
            "{hosts:?}"
        );
        let killed = Ran::from(rack.gossamer(&["kill", &number.to_string()]).output().unwrap());
        assert_eq!(killed.status, Some(0), "{killed:?}");
    });
    let ran = finish(job);
    assert!(ran.err.contains("was ended by admin (admin)"), "{ran:?}");
    rack.assert_nothing_left();
}

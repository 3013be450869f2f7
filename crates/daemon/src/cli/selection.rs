//! The hosts and threads of a job whose user names none: all hosts that answer, and as many threads
//! as each of them has processors for.

use daemon_protocol::{Answer, HostReport, Name, Request};

use crate::causes::with_causes;
use crate::cli::args::RunArgs;
use crate::cli::output::{CommandError, complain};
use crate::controller::call::{CallError, Caller};
use crate::controller::run::RunError;

/// The hosts of a job, and the threads of each of its processes.
pub(crate) async fn select(
    caller: &Caller,
    args: &RunArgs,
) -> Result<(Vec<Name>, u32), CommandError> {
    match (&args.hosts, args.threads) {
        (Some(hosts), Some(threads)) => Ok((hosts.clone(), threads)),
        (Some(hosts), None) => {
            let mut reports = Vec::new();
            for (_, report) in ask(caller, hosts).await {
                reports.push(report.map_err(RunError::from)?);
            }
            Ok((hosts.clone(), threads_of(&reports, args.processes_per_host)))
        }
        (None, threads) => {
            let mut reports = Vec::new();
            for (_, report) in ask(caller, &caller.hosts()).await {
                match report {
                    Ok(report) => reports.push(report),
                    Err(error) => complain(&with_causes(&error)),
                }
            }
            if reports.is_empty() {
                let reason = "no host of the rack answers: `gossamer hosts` lists them";
                return Err(RunError::Hosts(reason.into()).into());
            }
            let threads = threads.unwrap_or_else(|| threads_of(&reports, args.processes_per_host));
            let hosts: Vec<_> = reports.into_iter().map(|report| report.name).collect();
            let names: Vec<_> = hosts.iter().map(Name::as_str).collect();
            complain(&format!("running on {} with --threads {threads}", names.join(",")));
            Ok((hosts, threads))
        }
    }
}

/// The reports of hosts, in their order. Each has the name of the host that was asked.
async fn ask(caller: &Caller, hosts: &[Name]) -> Vec<(Name, Result<HostReport, CallError>)> {
    let answers = caller.ask_all(hosts, &Request::Describe).await;
    let report = |(host, answer): (Name, Result<Answer, CallError>)| {
        let report = match answer {
            Ok(Answer::Host(report)) => Ok(HostReport { name: host.clone(), ..*report }),
            Ok(_) => {
                let reason = "unexpected answer of its daemon".into();
                Err(CallError::Refused { host: host.clone(), reason })
            }
            Err(error) => Err(error),
        };
        (host, report)
    };
    answers.into_iter().map(report).collect()
}

/// The threads of each process when every host runs `processes`: all have equally many, so the host
/// with the fewest processors decides. At least one.
fn threads_of(hosts: &[HostReport], processes: u32) -> u32 {
    let fewest = hosts.iter().map(|host| host.processors).min().unwrap_or(1);
    (fewest / processes.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use daemon_protocol::topology::Topology;

    use super::*;

    fn host(processors: u32) -> HostReport {
        HostReport {
            name: "a".parse().unwrap(),
            version: "1".into(),
            running: 0,
            processors,
            topology: Topology::default(),
            over_rdma: vec![],
        }
    }

    #[test]
    fn the_host_with_the_fewest_processors_decides() {
        assert_eq!(threads_of(&[host(24), host(8), host(16)], 1), 8);
        assert_eq!(threads_of(&[host(24), host(8), host(16)], 3), 2);
        assert_eq!(threads_of(&[host(24), host(0)], 1), 1, "a host that says nothing of use");
        assert_eq!(threads_of(&[host(4)], 200), 1, "more processes than processors");
    }
}
